package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// pairs is a plugin that prefers devices whose numbers differ by two, as GPUs that are joined so. It
// notes each question, and takes a while to answer.
type pairs struct {
	plugins
	mu    sync.Mutex
	asked []string
	takes time.Duration
	hangs bool
	hung  string // a resource whose plugin hangs
}

func newPairs(n int) *pairs {
	p := &pairs{}
	p.preferred = nil
	p.offer("example.com/gpu", n)
	r := p.Inventory().Resources["example.com/gpu"]
	r.Options.Preferred = true
	p.set(r)
	return p
}

func (p *pairs) Preferred(ctx context.Context, q devicemanager.PreferredRequest) ([]string, error) {
	p.mu.Lock()
	p.asked = append(p.asked, fmt.Sprintf("%d of %s", q.Size, strings.Join(q.Available, " ")))
	p.mu.Unlock()
	if p.hangs || p.hung == q.Resource {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	time.Sleep(p.takes)
	for i := range 8 {
		one, other := fmt.Sprint("d", i), fmt.Sprint("d", i+2)
		if slices.Contains(q.Available, one) && slices.Contains(q.Available, other) && q.Size == 2 {
			return []string{one, other}, nil
		}
	}
	return q.Available[len(q.Available)-q.Size:], nil
}

// gpus is what pods have of the GPUs, by their names.
func (d *desk) gpus() string {
	var out []string
	for _, p := range d.store.State().List() {
		for _, set := range p.Containers["main"].Devices() {
			out = append(out, string(p.UID)+"="+strings.Join(set.IDs, ","))
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// One deadline is all that a plugin costs which does not answer, however many pods stand in line.
func TestSilentPluginKeepsTheLineOnce(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := newPairs(8)
		p.hangs = true
		var mu sync.Mutex
		var reported []string
		d := open(t, dir, &p.plugins, func(c *Config) {
			c.Plugins = p
			c.Unadvised = func(pod *v1.Pod, key allocation.AskKey, err error) {
				mu.Lock()
				defer mu.Unlock()
				reported = append(reported, fmt.Sprintf("%s %s: %v", pod.Name, key.Container, err))
			}
		})
		defer d.stop()
		d.together(func() {
			for _, name := range []string{"a", "b", "c"} {
				d.queue.Submit(pod(name, "example.com/gpu=2"), false)
			}
		})
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if got := d.gpus(); got != "a=d0,d1 b=d2,d3 c=d4,d5" || len(p.asked) != 1 {
			t.Errorf("%s; asked %q", got, p.asked)
		}
		mu.Lock()
		defer mu.Unlock()
		want := []string{"a main: context deadline exceeded",
			"b main: asked about default/a it said: context deadline exceeded",
			"c main: asked about default/a it said: context deadline exceeded"}
		if !slices.Equal(reported, want) {
			t.Errorf("told %q", reported)
		}
		for pod, want := range map[string]string{
			"a": "example.com/gpu of container main: context deadline exceeded",
			"c": "example.com/gpu of container main: asked about default/a it said: context deadline exceeded",
		} {
			record, _ := d.queue.Explained(t.Context(), "default", pod)
			if ignored := record.Remarks.Ignored; len(ignored) != 1 || ignored[0] != want ||
				!strings.Contains(record.Text(), want) {
				t.Errorf("the record of %s says that %q was ignored, want %q", pod, ignored, want)
			}
		}
	})
}
