package check

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// A good plugin passes all checks, whichever way it registers.
func TestGoodPlugin(t *testing.T) {
	for _, way := range []devicemanager.Way{devicemanager.ByRegister, devicemanager.ByRegistry} {
		t.Run(string(way), func(t *testing.T) {
			t.Parallel()
			p := good()
			p.registry = way == devicemanager.ByRegistry
			report, err := Run(t.Context(), Config{Run: p.run, Levers: p.levers()})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range report.Results {
				t.Logf("%s %s: %s (%.2f s)", r.Verdict, r.Name, r.Happened, r.Seconds)
				if r.Verdict == Failed || r.Verdict == Warning {
					t.Errorf("%s: %s", r.Name, r.Happened)
				}
			}
			t.Log(report.Summary())
			if report.Way != way || report.Resource != gpu || report.Devices != 4 {
				t.Errorf("the report is of %+v", report)
			}
			want := []string{"registry-notice", hasReasons, hasPlaces, hearsReleased,
				"starts-after-kill", "ids-stay"}
			if p.registry {
				want = []string{"options-agree", hasReasons, hasPlaces, hearsReleased,
					"socket-made-anew", "starts-after-kill", "ids-stay"}
			}
			if got := namesOf(report, Skipped); !slices.Equal(got, want) {
				t.Errorf("these are not made: %q, want %q", got, want)
			}
		})
	}
}

// If several plugins register, the named one is checked.
func TestOneOfSeveral(t *testing.T) {
	t.Parallel()
	p, other := good(), good()
	other.socket, other.devices = "nic.sock", invented(2)
	other.request = func(_ string, r *v1beta1.RegisterRequest) {
		r.ResourceName = "example.com/nic"
	}
	report, err := Run(t.Context(), Config{
		Resource: gpu, Patience: 20 * time.Second, // there are twice as many slow calls
		Run: func(ctx context.Context, dirs Dirs) error {
			var group errgroup.Group
			group.Go(func() error { return p.run(ctx, dirs) })
			group.Go(func() error { return other.run(ctx, dirs) })
			return group.Wait()
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if report.Resource != gpu || report.Devices != 4 || !report.Good() {
		t.Errorf("of %d devices of %s these fail: %q", report.Devices, report.Resource,
			namesOf(report, Failed))
	}
}

// Each resource of a plugin is checked, also if two share a socket, and each finding says of which
// resource it is.
func TestEveryResource(t *testing.T) {
	t.Parallel()
	p := good()
	p.also = "example.com/nic"
	p.devices[2].Health = "fine"
	levers := p.levers()
	report, err := Run(t.Context(), Config{Run: p.run, Levers: levers})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{gpu, "example.com/nic"}
	if slices.Sort(report.Resources); !slices.Equal(report.Resources, want) {
		t.Errorf("checked %q, want %q", report.Resources, want)
	}
	of := map[string]int{}
	for _, r := range report.Results {
		if of[r.Resource]++; r.Verdict == Failed && r.Name != "health-words" ||
			r.Verdict == Warning {
			t.Errorf("%s %s of %s: %s", r.Verdict, r.Name, r.Resource, r.Happened)
		}
	}
	failures := resultsOf(report, Failed)
	if len(failures) != 2 || failures[0].Resource == failures[1].Resource || of[""] > 0 ||
		of[gpu] != of["example.com/nic"] {
		t.Errorf("%d failures: %+v of %v", len(failures), failures, of)
	}
	var many []Verdict
	for _, r := range report.Results {
		if r.Name == "many" {
			many = append(many, r.Verdict)
		}
	}
	if !slices.Equal(many, []Verdict{Skipped, Passed}) {
		t.Errorf("many devices with the last resource only: %v", many)
	}
}

// A lever that changes devices of another resource says nothing about this one.
func TestLeverOfAnotherResource(t *testing.T) {
	t.Parallel()
	p, other := good(), good()
	other.socket = "nic.sock"
	other.request = func(_ string, r *v1beta1.RegisterRequest) { r.ResourceName = "example.com/nic" }
	levers := p.levers()
	delete(levers, Multiply)
	report, err := Run(t.Context(), Config{
		Levers: levers, Patience: 3 * time.Second, Only: []string{"changes"}, watch: time.Second,
		Run: func(ctx context.Context, dirs Dirs) error {
			var group errgroup.Group
			group.Go(func() error { return p.run(ctx, dirs) })
			group.Go(func() error { return other.run(ctx, dirs) })
			return group.Wait()
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]Result{}
	for _, r := range report.Results {
		if r.Name == "unhealthy" {
			got[r.Resource] = r
		}
	}
	if !report.Good() || got[gpu].Verdict != Passed || got["example.com/nic"].Verdict != Skipped ||
		got["example.com/nic"].Happened != "the lever sicken changed devices of example.com/gpu" {
		t.Errorf("%s: %+v", report.Summary(), got)
	}
}

// Only makes the checks of the names, and those that they need.
func TestOnly(t *testing.T) {
	t.Parallel()
	report, err := Run(t.Context(), Config{Run: good().run, Only: []string{"start", allocates}})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range report.Results {
		names = append(names, r.Name)
	}
	if want := plus(usable(), allocates, allocateAgain, "pre-start", "pre-start-again"); !slices.Equal(
		names, want) {
		t.Errorf("made %q, want %q", names, want)
	}
	_, err = Run(t.Context(), Config{Run: good().run, Only: []string{"alocate"}})
	if err == nil || !strings.Contains(err.Error(), `no check or group of checks "alocate"; there are registration, `) {
		t.Error(err)
	}
}

func namesOf(report Report, v Verdict) (names []string) {
	for _, r := range resultsOf(report, v) {
		names = append(names, r.Name)
	}
	return names
}

// Every check has a unique name and all its words, and needs only earlier checks.
func TestTable(t *testing.T) {
	page, err := os.ReadFile("../../docs/writing-device-plugins.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, g := range table() {
		for _, c := range g.checks {
			if slices.Contains(names, c.name) || c.name == "" || c.run == nil {
				t.Errorf("the name %q", c.name)
			}
			for _, text := range []string{c.did, c.expected, c.why, c.hint} {
				if text == "" || strings.HasSuffix(text, ".") {
					t.Errorf("%s: %+v", c.name, c.words)
				}
			}
			for _, need := range c.needs {
				if !slices.Contains(names, need) {
					t.Errorf("%s needs %q, which does not come before it", c.name, need)
				}
			}
			if !strings.Contains(string(page), " "+c.name) {
				t.Errorf("docs/writing-device-plugins.md does not name %s", c.name)
			}
			names = append(names, c.name)
		}
	}
}
