// Progress reads what go test -json says and prints what go test says without it: a line for each
// package, and what failed tests said, each when it ends. Each half minute it adds a line that says
// how far the tests are, and at the end, if it is asked to, which tests took longest.
//
//	go test -json ./... | progress -tier unit -usually 5m -slowest 50
//
// It exits with 1 if a test, a package or a build failed, or if nothing was tested.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"
)

func main() {
	tier := flag.String("tier", "tests", "what the lines begin with")
	usually := flag.Duration("usually", 0, "how long it takes on two cores with warm caches")
	slowest := flag.Int("slowest", 0, "how many of the longest tests to list at the end")
	failed := flag.String("failed", "", "append the names of failed tests to this file, in one line")
	verbose := flag.Bool("v", false, "print what tests say that pass")
	flag.Parse()
	signal.Ignore(os.Interrupt) // go test ends at it, and what it says of that is still printed

	began := time.Now()
	report := newReport(os.Stdout, *verbose)
	lines := make(chan string)
	var broken error
	go func() {
		defer close(lines)
		in := bufio.NewReader(os.Stdin)
		for {
			line, err := in.ReadString('\n')
			if line != "" {
				lines <- line
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					broken = err
				}
				return
			}
		}
	}()
	tick := time.NewTicker(30 * time.Second)
	defer tick.Stop()
	for open := true; open; {
		select {
		case line, more := <-lines:
			if open = more; more {
				report.line(line)
			}
		case <-tick.C:
			fmt.Fprintln(os.Stderr, report.progress(*tier, time.Now(), began, *usually))
		}
	}
	report.end()
	for _, line := range report.longest(*slowest) {
		fmt.Println(line)
	}
	if broken != nil {
		fmt.Fprintln(os.Stderr, "progress: read what go test says:", broken)
		os.Exit(1)
	}
	if report.failed {
		note(*failed, report.names)
		os.Exit(1)
	}
}

// note appends the names to the file; "" stands for no file.
func note(file string, names []string) {
	if file == "" {
		return
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, strings.Join(names, " "))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "progress: name the failed tests:", err)
	}
}
