// A participant's process for the Go libraries: the same lines of JSON in and out as benchmarks.worker.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

const ttl = 30 * time.Second

type job struct {
	Peer     string             `json:"peer"`
	Workload string             `json:"workload"`
	URL      string             `json:"url"`
	Name     string             `json:"name"`
	Workers  int                `json:"workers"`
	Options  map[string]float64 `json:"options"`
}

// A handle takes a lock and returns what gives it back.
type handle func() (func() error, error)

// The machine's monotonic clock, the same for all processes.
func now() float64 {
	var spec syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&spec)), 0)
	return float64(spec.Sec) + float64(spec.Nsec)/1e9
}

func hosts(j job) []string {
	_, rest, _ := strings.Cut(j.URL, "://")
	rest, _, _ = strings.Cut(rest, "/")
	return strings.Split(rest, ",")
}

func cpu() float64 {
	var used syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return float64(used.Utime.Sec+used.Stime.Sec) + float64(used.Utime.Usec+used.Stime.Usec)/1e6
}

func sleep(seconds float64) {
	if seconds > 0 {
		time.Sleep(time.Duration(seconds * 1e9))
	}
}

var out = bufio.NewWriter(os.Stdout)

func say(line any) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	out.Write(append(text, '\n'))
	out.Flush()
}

func fail(err error) {
	say(map[string]string{"error": err.Error(), "kind": fmt.Sprintf("%T", err)})
	os.Exit(1)
}

func together(workers int, work func(worker int)) {
	var group sync.WaitGroup
	for worker := 0; worker < workers; worker++ {
		group.Add(1)
		go func() { defer group.Done(); work(worker) }()
	}
	group.Wait()
}

func percentile(sorted []float64, share float64) float64 {
	return sorted[min(len(sorted)-1, int(float64(len(sorted))*share))]
}

func pairs(j job, open func(string) handle, command map[string]float64) any {
	handles := make([]handle, j.Workers)
	waits := make([][]float64, j.Workers)
	for worker := range handles {
		handles[worker] = open(fmt.Sprintf("%s-%d", j.Name, worker))
	}
	used, begin := cpu(), now()
	until := begin + command["seconds"]
	together(j.Workers, func(worker int) {
		for asked := now(); asked < until; asked = now() {
			release, err := handles[worker]()
			if err != nil {
				fail(err)
			}
			waits[worker] = append(waits[worker], now()-asked)
			if err = release(); err != nil {
				fail(err)
			}
		}
	})
	wall, spent := now()-begin, cpu()-used
	var all []float64
	squares := 0.0
	for _, took := range waits {
		all = append(all, took...)
		squares += float64(len(took)) * float64(len(took))
	}
	sort.Float64s(all)
	sum := float64(len(all))
	return map[string]float64{
		"grants": sum, "wall": wall, "cpu": spent, "thread_cpu": spent,
		"jain":           sum * sum / (float64(j.Workers) * squares),
		"acquire_p50_us": percentile(all, 0.5) * 1e6, "acquire_p99_us": percentile(all, 0.99) * 1e6,
		"acquire_max_us": all[len(all)-1] * 1e6,
	}
}

func crowd(j job, open func(string) handle, command map[string]float64) any {
	start, section := command["start"], command["section"]
	events := make([][][]any, j.Workers)
	handles := make([]handle, j.Workers)
	for worker := range handles {
		handles[worker] = open(j.Name)
	}
	used := cpu()
	together(j.Workers, func(worker int) {
		sleep(start - now())
		for now() < start+command["seconds"] {
			asked := now()
			release, err := handles[worker]()
			if err != nil {
				fail(err)
			}
			acquired := now()
			sleep(section)
			releasing := now()
			if err = release(); err != nil {
				fail(err)
			}
			events[worker] = append(events[worker], []any{worker, asked, acquired, releasing, now(), nil})
		}
	})
	all := [][]any{}
	for _, some := range events {
		all = append(all, some...)
	}
	return map[string]any{"events": all, "cpu": cpu() - used}
}

func turn(j job, open func(string) handle, command map[string]float64) any {
	release, err := open(j.Name)()
	if err != nil {
		fail(err)
	}
	acquired := now()
	say(map[string]float64{"acquired": acquired})
	sleep(acquired + command["hold"] - now())
	releasing := now()
	if err = release(); err != nil {
		fail(err)
	}
	time.Sleep(10 * time.Millisecond)
	return map[string]float64{"releasing": releasing}
}

func main() {
	var j job
	if err := json.Unmarshal([]byte(os.Args[1]), &j); err != nil {
		panic(err)
	}
	open, err := openers[j.Peer](j)
	if err != nil {
		fail(err)
	}
	play := crowd
	switch j.Workload {
	case "turns":
		play = turn
	case "pairs":
		play = pairs
	}
	say(map[string]int{"ready": 1})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var command map[string]float64
		if err := json.Unmarshal(lines.Bytes(), &command); err != nil {
			fail(err)
		}
		say(play(j, open, command))
	}
}
