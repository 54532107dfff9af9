package bench

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/numalet/numalet/agent/rig"
)

// every is the time between two lines of progress.
const every = 2 * time.Second

// progress says on stderr how far the policies are. Runs that take less than one interval print
// nothing.
type progress struct {
	w     io.Writer
	names []string
	total int // pods of each policy

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
	if o.Quiet {
		p.w = io.Discard
	}
	return p
}

// arrived takes note of how many pods a policy has decided on.
func (p *progress) arrived(policy, pods int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done[policy] = pods
	now := time.Now()
	if now.Sub(p.printed) < every {
		return
	}
	p.printed = now
	fmt.Fprintln(p.w, p.line(now.Sub(p.began)))
}

// line is "restricted 34%, none done; 41200 admissions a second, 25s left".
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
	text := fmt.Sprintf("%s; %.0f pods a second", strings.Join(parts, ", "), rate)
	if rate > 0 {
		left := time.Duration(float64(p.total*len(p.done)-sum) / rate * float64(time.Second))
		text += fmt.Sprintf(", about %v left", left.Round(time.Second))
	}
	return text
}
