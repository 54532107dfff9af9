package check

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// nicety is a way in which a plugin could be better, with the check that warns of it.
type nicety struct {
	check string
	make  func(p *plugin)
	says  string
}

func niceties() map[string]nicety {
	var calls atomic.Int64
	var slept atomic.Bool
	return map[string]nicety{
		"other options": {"options-agree", func(p *plugin) {
			p.request = func(_ string, r *v1beta1.RegisterRequest) { r.Options = nil }
		}, "pre_start_required"},
		"an empty topology": {"empty-topology", func(p *plugin) {
			p.devices[1].Topology = &v1beta1.TopologyInfo{}
		}, "gpu-1"},
		"looks seldom": {"socket-made-anew", func(p *plugin) { p.looks = notices + time.Second },
			"it did not in"},
		"registers on a timer": {"register-pace", func(p *plugin) { p.insists = 40 * time.Millisecond },
			"it registered"},
		"registers now and then": {"register-pace", func(p *plugin) { p.insists = 300 * time.Millisecond },
			"in which kubelet.sock stayed"},
		"flaps": {"list-steady", func(p *plugin) {
			p.list = func(s *served, _ int, to lister) error {
				for n := 0; to.Context().Err() == nil; n++ {
					devices := invented(4)
					if n%2 == 1 {
						devices[1].Health = v1beta1.Unhealthy
					}
					if err := to.Send(&v1beta1.ListAndWatchResponse{Devices: devices}); err != nil {
						return err
					}
					select {
					case <-time.After(900 * time.Millisecond):
					case <-to.Context().Done():
					}
				}
				return nil
			}
		}, "gpu-1 went Healthy, Unhealthy, Healthy"},
		"an id that climbs": {usableIDs, func(p *plugin) { p.devices[1].ID = "../gpu-1" }, "../gpu-1"},
		"a name with a value": {"answer", answering(&v1beta1.ContainerAllocateResponse{
			Envs: map[string]string{"A=B": "c"},
		}), `arrives as A with the value "B=c"`},
		"no devices": {"devices", func(p *plugin) { p.devices = nil }, "none of 0"},
		"chatters": {"list-pace", func(p *plugin) {
			p.list = func(s *served, _ int, to lister) error {
				for to.Context().Err() == nil {
					devices, _ := s.state()
					if err := to.Send(&v1beta1.ListAndWatchResponse{
						Devices: devices,
					}); err != nil {
						return err
					}
					time.Sleep(50 * time.Millisecond)
				}
				return nil
			}
		}, "said what the one before said"},
		"lists in no order": {"list-pace", func(p *plugin) {
			p.list = func(s *served, _ int, to lister) error {
				for n := 0; to.Context().Err() == nil; n++ {
					devices, _ := s.state()
					at := n % len(devices)
					if err := to.Send(&v1beta1.ListAndWatchResponse{
						Devices: slices.Concat(devices[at:], devices[:at]),
					}); err != nil {
						return err
					}
					time.Sleep(50 * time.Millisecond)
				}
				return nil
			}
		}, "nothing was done to the devices"},
		"not on this machine": {"answer", func(p *plugin) {
			p.answers = func(a *v1beta1.AllocateResponse) {
				for _, r := range a.GetContainerResponses() {
					r.Mounts = []*v1beta1.Mount{{HostPath: "/nowhere/lib", ContainerPath: "/lib"}}
				}
			}
		}, "this machine does not have /nowhere/lib"},
		"slow to prefer": {"prefer", func(p *plugin) {
			p.prefer = func(available, must []string, size int) ([]string, error) {
				if slept.CompareAndSwap(false, true) {
					time.Sleep(devicemanager.DefaultDeadlines().Preferred/2 + 100*time.Millisecond)
				}
				return firsts(available, must, size)
			}
		}, "pods wait so long"},
		"another answer": {"allocate-again", func(p *plugin) {
			p.answers = func(a *v1beta1.AllocateResponse) {
				for _, r := range a.GetContainerResponses() {
					r.Envs = map[string]string{"N": fmt.Sprint(calls.Add(1))}
				}
			}
		}, "it answered first"},
		"answers anything": {"unlisted-id", func(p *plugin) {
			p.allocate = func(context.Context, *served, []string) (
				*v1beta1.ContainerAllocateResponse, error) {
				return &v1beta1.ContainerAllocateResponse{}, nil
			}
		}, "as if nothing were wrong"},
		"in no order": {"prefer-again", func(p *plugin) {
			p.prefer = func(available, must []string, size int) ([]string, error) {
				turned := slices.Clone(available)
				n := int(calls.Add(1)) % len(turned)
				return firsts(slices.Concat(turned[n:], turned[:n]), must, size)
			}
		}, "first it said"},
	}
}

// What works in the field but could be better is a warning, not a failure.
func TestWarnings(t *testing.T) {
	all := niceties()
	var mu sync.Mutex // guards reports
	reports := map[string]Report{}
	var group errgroup.Group
	group.SetLimit(atOnce)
	for name, tc := range all {
		group.Go(func() error {
			p := good()
			tc.make(p)
			report, err := Run(t.Context(), Config{Run: p.run})
			mu.Lock()
			defer mu.Unlock()
			reports[name] = report
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for name, tc := range all {
		t.Run(name, func(t *testing.T) {
			report := reports[name]
			if !report.Good() {
				t.Errorf("it fails %q", namesOf(report, Failed))
			}
			if got := namesOf(report, Warning); !slices.Equal(got, []string{tc.check}) {
				t.Errorf("it is warned of %q, want %q", got, tc.check)
			}
			if r := find(report, tc.check); !strings.Contains(r.Happened, tc.says) {
				t.Errorf("%s says %q", tc.check, r.Happened)
			}
		})
	}
}

// A plugin that never registers fails that check, and all others are skipped.
func TestNeverRegisters(t *testing.T) {
	report, err := Run(t.Context(), Config{
		Run: func(ctx context.Context, _ Dirs) error {
			<-ctx.Done()
			return nil
		},
		Patience: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	wantFailed(t, report, registers, "nothing came in 100ms")
	if n := report.Count(Skipped); n != len(report.Results)-1 {
		t.Errorf("%d of %d are not made", n, len(report.Results))
	}
}

// The end of a plugin between checks is reported.
func TestStays(t *testing.T) {
	b := &bench{subject: attached{}, deaths: deaths{others: []*Ending{{words: "bye"}}}}
	if o := checkStays(t.Context(), b); o.verdict != Failed ||
		o.happened != "it ended; its last words: bye, 1 times in all" {
		t.Errorf("%+v", o)
	}
}

func TestAnswerFlaws(t *testing.T) {
	device := func(host, container, permissions string) *v1beta1.ContainerAllocateResponse {
		return &v1beta1.ContainerAllocateResponse{Devices: []*v1beta1.DeviceSpec{{
			HostPath: host, ContainerPath: container, Permissions: permissions,
		}}}
	}
	mount := func(host, container string) *v1beta1.Mount {
		return &v1beta1.Mount{HostPath: host, ContainerPath: container}
	}
	for name, tc := range map[string]struct {
		answer *v1beta1.ContainerAllocateResponse
		want   string
	}{
		"empty":        {&v1beta1.ContainerAllocateResponse{}, ""},
		"good":         {device("/dev/a", "/dev/b", "rwm"), ""},
		"permissions":  {device("/dev/a", "/dev/b", "rwx"), ""},
		"none":         {device("/dev/a", "/dev/b", ""), `device /dev/a has no permissions`},
		"no container": {device("/dev/a", "", "r"), `the container path "" of a device`},
		"relative": {&v1beta1.ContainerAllocateResponse{Mounts: []*v1beta1.Mount{
			mount("lib", "/lib"),
		}}, `the host path "lib" of a mount is not absolute`},
		"twice": {&v1beta1.ContainerAllocateResponse{Mounts: []*v1beta1.Mount{
			mount("/a", "/c"), mount("/b", "/c"),
		}}, `two mounts have the container path "/c"`},
		"name with a value": {&v1beta1.ContainerAllocateResponse{Envs: map[string]string{"A=B": ""}}, ""},
		"no name": {&v1beta1.ContainerAllocateResponse{Envs: map[string]string{"=A": "b"}},
			`the variable "=A=b" has no name`},
		"NUL": {&v1beta1.ContainerAllocateResponse{Envs: map[string]string{"A": "\x00"}},
			`the variable "A" has a NUL`},
		"root": {&v1beta1.ContainerAllocateResponse{Mounts: []*v1beta1.Mount{mount("/a", "/")}},
			`the mount of "/a" on /`},
		"cdi": {&v1beta1.ContainerAllocateResponse{CdiDevices: []*v1beta1.CDIDevice{
			{Name: "nvidia.com/gpu=0"}, {Name: "gpu0"},
		}}, `the CDI device "gpu0" is not named like vendor.com/class=name`},
	} {
		flaws := strings.Join(devicemanager.AnswerFlaws(tc.answer), "; ")
		if tc.want == "" && flaws != "" || !strings.Contains(flaws, tc.want) {
			t.Errorf("%s: %q, want %q", name, flaws, tc.want)
		}
	}
}

// What starts, and is probably not meant, is told apart from what is refused.
func TestAnswerOddities(t *testing.T) {
	odd := devicemanager.AnswerOddities(&v1beta1.ContainerAllocateResponse{
		Envs:    map[string]string{"A=B": "c", "D": "e"},
		Devices: []*v1beta1.DeviceSpec{{HostPath: "/dev/a", ContainerPath: "/dev/a", Permissions: "rwx"}},
	})
	if len(odd) != 2 || !strings.Contains(odd[0], `arrives as A with the value "B=c"`) ||
		!strings.Contains(odd[1], `"rwx" of device /dev/a are not`) {
		t.Errorf("%q", odd)
	}
}

var said3 = Report{
	Resource: gpu, Resources: []string{gpu}, Seconds: 1.5,
	Results: []Result{
		{Name: "a", Group: "one", Verdict: Passed, Happened: "it did"},
		{Name: "b", Group: "one", Verdict: Failed, Happened: "<no>", Did: "asked", Expected: "yes",
			Why: "pods", Hint: "say yes", Seconds: .25},
		{Name: "c", Group: "two", Verdict: Skipped, Happened: "not made, since b failed"},
		{Name: "c2", Group: "two", Verdict: Skipped, Happened: "not made, since b failed"},
		{Name: "d", Group: "two", Verdict: Warning, Happened: "slow", Did: "waited",
			Expected: "soon", Why: "time", Hint: "hurry"},
	},
}

func TestText(t *testing.T) {
	var b strings.Builder
	text := &Text{W: &b, Width: 60}
	for _, r := range said3.Results {
		if err := text.Result(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := text.End(said3); err != nil {
		t.Fatal(err)
	}
	const want = `one
  ok    a                       it did
  FAIL  b                       <no>
        did       asked
        expected  yes
        why       pods
        hint      say yes
two
  warn  d                       slow
        did       waited
        expected  soon
        why       time
        hint      hurry
not made
  -     c, c2: since b failed
failed
  FAIL  b                       <no>
        hint      say yes
example.com/gpu: 1 passed, 1 failed (b), 1 with warnings (d), 2 not made, in 1.5 s
`
	if got := b.String(); got != want {
		t.Errorf("the text is\n%s\nwant\n%s", got, want)
	}
}

// Nothing was checked if no device could be allocated, though nothing failed.
func TestUnchecked(t *testing.T) {
	result := func(name string, v Verdict) Result { return Result{Name: name, Verdict: v, Happened: "none"} }
	for _, tc := range []struct {
		results []Result
		want    string
	}{
		{[]Result{result("a", Passed), result(allocates, Passed)}, ""},
		{[]Result{result("a", Passed), result(allocates, Skipped)}, "none"},
		{[]Result{result("a", Failed), result(allocates, Skipped)}, ""},
		{[]Result{result("a", Passed), result("prepares", Skipped)}, "none"},
		{[]Result{result("a", Passed), result("b", Skipped)}, ""},
		{[]Result{result("b", Skipped)}, "no check could be made"},
	} {
		if got := (Report{Results: tc.results}).Unchecked(); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.results, got, tc.want)
		}
	}
}

func TestJUnit(t *testing.T) {
	var b bytes.Buffer
	if err := WriteJUnit(&b, said3); err != nil {
		t.Fatal(err)
	}
	var all junitSuites
	if err := xml.Unmarshal(b.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	if all.Tests != 5 || all.Failures != 1 || all.Skipped != 2 || len(all.Suites) != 2 ||
		all.Name != "device plugin "+gpu {
		t.Fatalf("%+v", all)
	}
	one, two := all.Suites[0], all.Suites[1]
	if one.Name != "one" || one.Tests != 2 || one.Failures != 1 || two.Name != "two" ||
		two.Skipped != 2 || len(two.Cases) != 3 || one.Time != "0.250" {
		t.Errorf("%+v\n%+v", one, two)
	}
	failure := one.Cases[1].Failure
	if failure == nil || failure.Message != "<no>" || !strings.Contains(failure.Text, "say yes") {
		t.Errorf("the failure is %+v", failure)
	}
	if two.Cases[2].Failure != nil || !strings.Contains(two.Cases[2].Out, "warning: slow") {
		t.Errorf("the warning is %+v", two.Cases[2])
	}
}

// tester is a *testing.T that only counts.
type tester struct {
	*testing.T
	errors []string
}

func (t *tester) Errorf(format string, args ...any) {
	t.errors = append(t.errors, fmt.Sprintf(format, args...))
}

// In a plugin's own test each failed check is an error.
func TestInTests(t *testing.T) {
	p := good()
	p.devices[1].Health = "healthy"
	counting := &tester{T: t}
	report := Test(counting, Config{Run: p.run})
	if len(counting.errors) != 1 || !strings.HasPrefix(counting.errors[0], "health-words of example.com/gpu: 1 have") {
		t.Errorf("the errors are %q", counting.errors)
	}
	var b strings.Builder
	if err := WriteTranscript(&b, report.Transcript); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"plugin -> device manager: Register {version:\"v1beta1\"",
		"device manager -> plugin: GetDevicePluginOptions {}",
		"plugin -> device manager: ListAndWatch {devices:{ID:\"gpu-0\"",
		"--- check health-words",
	} {
		// The text of messages has one space or two, at random.
		if !strings.Contains(strings.ReplaceAll(b.String(), "  ", " "), want) {
			t.Errorf("the transcript does not have %q:\n%s", want, b.String())
		}
	}
}
