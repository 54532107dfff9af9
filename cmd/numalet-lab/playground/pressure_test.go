package playground

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/numalet/numalet/agent"
	"github.com/numalet/numalet/internal/await"
)

// TestPlaygroundTellsOfPressure starts an agent whose node is always short of memory, but without an
// eviction: the terminal's picture and the lines for pipes tell of it.
func TestPlaygroundTellsOfPressure(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("evictionSoft: {memory.available: 99.9%}\n"+
		"evictionSoftGracePeriod: {memory.available: 24h}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "nl-") // a socket's path has little room
	if err != nil {
		t.Fatal(err)
	}
	p := &Playground{ground: ground{dir: dir, opts: Options{Runtime: Simulated, Examples: "none", Config: file}}}
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
		if err := p.close(false); err != nil {
			t.Error(err)
		}
	})
	if err := p.prepare(); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	endpoint, err := p.startRuntime(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := p.config(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	if p.agent, err = agent.New(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	var out said
	p.opts.Out = &out
	var work sync.WaitGroup
	p.stops = append(p.stops, func() error { work.Wait(); return nil })
	work.Go(func() {
		if err := p.agent.Run(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	v := p.viewer()
	work.Go(func() { _ = v.lines(ctx) })
	const want = "MemoryPressure: memory.available is below "
	for end := time.Now().Add(time.Minute); ; {
		page := screen{headline: v.headline, now: v.look(), width: 100, height: 40}.page()
		if strings.Contains(page, want) && strings.Contains(out.String(), want) {
			return
		}
		if time.Now().After(end) || !await.For(ctx, refresh) {
			t.Fatalf("the page is\n%s\nand the lines are\n%s", page, out.String())
		}
	}
}

// said is what was printed until now.
type said struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}
