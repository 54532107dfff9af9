package playground

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/stats"

	"github.com/numalet/numalet/deviceplugin/check"
)

// author is a device plugin or a driver of claims that a user writes. It is played with instead of
// the simulated plugins, and what it and the agent say to each other is shown.
type author struct {
	what    string // plugin or driver, as in what is said
	command string
}

// author returns the user's plugin or driver; false: there is none.
func (o Options) author() (author, bool) {
	switch {
	case o.Plugin != "":
		return author{"plugin", o.Plugin}, true
	case o.Driver != "":
		return author{"driver", o.Driver}, true
	}
	return author{}, false
}

// places replaces what stands in the command for places of the playground.
func (p *Playground) places() *strings.Replacer {
	root := filepath.Join(p.dir, "root")
	kubeconfig := ""
	if p.cluster != nil {
		kubeconfig = p.cluster.kubeconfig
	}
	return strings.NewReplacer("{root}", root, "{dir}", filepath.Join(root, "device-plugins"),
		"{registry}", filepath.Join(root, "plugins_registry"),
		"{data}", filepath.Join(root, "plugins"), "{kubeconfig}", kubeconfig,
		"{node}", p.opts.node())
}

// stopWithin is how long the author's process has to end.
const stopWithin = 5 * time.Second

// run runs the author's process until ctx ends. It is not started again: its author wants to see what
// the agent does then.
func (a author) run(ctx context.Context, p *Playground) error {
	process := check.NewProcess(p.places().Replace(a.command), io.MultiWriter(p.log, p.calls.from(a.what)))
	if err := process.Start(check.Dirs{}); err != nil {
		return err
	}
	p.calls.put("the " + a.what + " is started: " + p.places().Replace(a.command))
	select {
	case <-process.Ended():
		p.calls.put("the " + a.what + ": " + process.Fate().String())
	case <-ctx.Done():
		process.Stop(stopWithin)
	}
	return nil
}

// mostCalls bounds what is kept of calls.
const mostCalls = 1000

// calls keeps the last lines of what an author's plugin or driver and the agent say to each other. Nil
// keeps nothing.
type calls struct {
	began time.Time

	mu    sync.Mutex // guards the fields below
	kept  []string
	count int // ever
}

// put adds a line that happens now.
func (c *calls) put(text string) { c.add(check.Line{At: time.Since(c.began), What: text}) }

func (c *calls) add(l check.Line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = append(c.kept, fmt.Sprintf("%9.3f  %s", l.At.Seconds(), l.What))
	if more := len(c.kept) - mostCalls; more > 0 {
		c.kept = append(c.kept[:0], c.kept[more:]...)
	}
	c.count++
}

// lines returns what is kept.
func (c *calls) lines() []string {
	lines, _ := c.since(0)
	return lines
}

// since returns the lines behind the first n ever, as far as they are kept, and how many there were.
func (c *calls) since(n int) (lines []string, count int) {
	if c == nil {
		return nil, 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	from := max(0, len(c.kept)-max(0, c.count-n))
	return append(lines, c.kept[from:]...), c.count
}

// heard returns what hears the messages at the agent's sockets of plugins.
func (c *calls) heard(what string) func(string) stats.Handler {
	c.began = time.Now()
	transcript := check.NewFollowed(c.add)
	return func(string) stats.Handler { return transcript.Handler("agent", what) }
}

// from returns a writer for what the process prints.
func (c *calls) from(what string) io.Writer { return &speaker{calls: c, what: what} }

// speaker adds the lines that are written to it.
type speaker struct {
	calls *calls
	what  string
	rest  string // of a line that has not ended
}

func (s *speaker) Write(text []byte) (int, error) {
	s.rest += string(text)
	for {
		line, rest, ended := strings.Cut(s.rest, "\n")
		if !ended {
			return len(text), nil
		}
		s.calls.put(s.what + " prints: " + line)
		s.rest = rest
	}
}
