"""What `pawlock serve` costs, beside a bare route of the framework that it is made with."""
