package bench

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/numalet/numalet/cmd/numalet-lab/rig"
	"github.com/numalet/numalet/internal/terminal"
)

// every is the time between two lines of progress.
const every = time.Second

// emptyLine moves the cursor to the start of a terminal's line and clears the line.
const emptyLine = "\r\x1b[K"

// progress shows on stderr how far the policies are, if stderr is a terminal. It uses one line,
// which end clears. Runs shorter than one interval print nothing.
type progress struct {
	w io.Writer
	// columns is the width of the terminal, or 0 if there is none.
	columns int
	names   []string
	total   int // pods of each policy

	mu      sync.Mutex
	done    []int
	began   time.Time
	printed time.Time
}

func newProgress(o Options, policies []rig.Policy, pods int) *progress {
	now := time.Now()
	p := &progress{
		w: o.Stderr, total: pods, done: make([]int, len(policies)), began: now, printed: now,
	}
	for _, policy := range policies {
		p.names = append(p.names, policy.Name)
	}
	if !o.Quiet {
		p.columns = terminal.Width(o.Stderr)
	}
	return p
}

// arrived records how many pods a policy has decided on.
func (p *progress) arrived(policy, pods int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done[policy] = pods
	now := time.Now()
	if p.columns == 0 || now.Sub(p.printed) < every {
		return
	}
	p.printed = now
	line := []rune(p.line(now.Sub(p.began)))
	fmt.Fprint(p.w, emptyLine+string(line[:min(len(line), p.columns-1)]))
}

// end clears the line.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.columns > 0 && p.printed != p.began {
		fmt.Fprint(p.w, emptyLine)
	}
	p.columns = 0
}

// line returns text like "41200 pods a second, about 25s left; none done, restricted 34%".
func (p *progress) line(elapsed time.Duration) string {
	var parts []string
	sum := 0
	for i, n := range p.done {
		sum += n
		switch {
		case n == p.total:
			parts = append(parts, p.names[i]+" done")
		case n > 0:
			parts = append(parts, fmt.Sprintf("%s %d%%", p.names[i], n*100/p.total))
		}
	}
	rate := float64(sum) / elapsed.Seconds()
	text := fmt.Sprintf("%.0f pods a second", rate)
	if rate > 0 {
		left := time.Duration(float64(p.total*len(p.done)-sum) / rate * float64(time.Second))
		text += fmt.Sprintf(", about %v left", left.Round(time.Second))
	}
	return text + "; " + strings.Join(parts, ", ")
}
