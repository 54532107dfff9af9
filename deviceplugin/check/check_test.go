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
			want := []string{"registry-notice", hearsReleased, "starts-after-kill", "ids-stay"}
			if p.registry {
				want = []string{"options-agree", hearsReleased, "socket-made-anew",
					"starts-after-kill", "ids-stay"}
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
