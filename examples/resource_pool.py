"""A slow service bears three requests at a time: a semaphore limits them over all processes and machines."""

import asyncio

import pawlock

LIMIT = 3


class Service:
    """What is called; it notes how many were in at once."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.answered = 0

    async def call(self) -> None:
        """Answer after a while."""
        self.inside += 1
        self.most = max(self.most, self.inside)
        await asyncio.sleep(0.05)
        self.inside -= 1
        self.answered += 1


async def ask(client: pawlock.AsyncClient, service: Service) -> None:
    """Call the service under a permit; a caller that dies gives its permit back within the ttl."""
    async with client.semaphore("slow-service", permits=LIMIT, ttl=10, timeout=30):
        await service.call()


async def crowd() -> Service:
    """Let twenty callers in two clients, as in two processes, share the permits."""
    service = Service()
    async with pawlock.connect_async() as one, pawlock.connect_async() as two, asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(ask((one, two)[number % 2], service))
    return service


def main() -> None:
    """Show that the limit was kept and used."""
    service = asyncio.run(crowd())
    print(f"{service.answered} answers, at most {service.most} at once")


if __name__ == "__main__":
    main()
