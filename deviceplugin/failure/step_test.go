package failure

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

var begin = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

const (
	healthy   = v1.ResourceHealthStatusHealthy
	unhealthy = v1.ResourceHealthStatusUnhealthy
	unknown   = v1.ResourceHealthStatusUnknown
)

// rulesOf has rules with a hold-off of a minute and a pause of a minute.
func rulesOf(t *testing.T, texts ...string) Rules {
	t.Helper()
	r := Rules{Pause: time.Minute}
	for _, text := range texts {
		if err := r.Add(text, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// story plays steps: each line of the script is "SECONDS POD=HEALTH..." where POD has one container,
// main, with one GPU. It returns what was told and done, each with its second.
type story struct {
	rules Rules
	state State
	pods  map[types.UID]*Pod
	out   []string
}

func (s *story) pod(uid, workload types.UID) *Pod {
	p := &Pod{UID: uid, Workload: workload,
		Containers: map[string]Container{"main": {ID: string(uid) + "-0", Started: begin.Add(-time.Hour)}},
		Devices: []Held{{Device: Device{Pod: uid, Container: "main", Resource: "example.com/gpu",
			ID: "gpu-" + string(uid)}, Health: healthy}}}
	if s.pods == nil {
		s.pods = map[types.UID]*Pod{}
	}
	s.pods[uid] = p
	return p
}

func (s *story) step(second int, health ...any) {
	for i := 0; i < len(health); i += 2 {
		s.pods[types.UID(health[i].(string))].Devices[0].Health = health[i+1].(v1.ResourceHealthStatus)
	}
	in := Input{Now: begin.Add(time.Duration(second) * time.Second),
		Known: func(uid types.UID) bool { return s.pods[uid] != nil }}
	for _, name := range []types.UID{"a", "b", "c"} {
		if p := s.pods[name]; p != nil {
			in.Pods = append(in.Pods, *p)
		}
	}
	var effects []Effect
	s.state, effects = s.state.Step(in, s.rules)
	for _, e := range effects {
		_, reason, message := e.Event(Facts{Why: "says the device plugin: hot", Running: true, Other: "ns/other"})
		s.out = append(s.out, fmt.Sprintf("%d %s %s: %s", second, e.Pod, reason, message))
	}
}

func (s *story) check(t *testing.T, want ...string) {
	t.Helper()
	if got := strings.Join(s.out, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	s.out = nil
}

const (
	gpuA = "device gpu-a of example.com/gpu"
	hot  = " is unhealthy, says the device plugin: hot (--device-failure-policy)"
)

// A container is restarted once for a failure that lasts, however long, and again for the next one.
func TestRestartOnce(t *testing.T) {
	s := &story{rules: rulesOf(t, "restart-container")}
	a := s.pod("a", "")
	const (
		planned = "a DeviceFailurePlanned: Container main is restarted in 1m0s, unless that is over by then: " +
			gpuA + hot
		acted = "a DeviceFailed: Device gpu-a of example.com/gpu has been unhealthy for 1m0s, says the " +
			"device plugin: hot; container main is restarted once: it keeps its devices, and nothing more " +
			"is done while they stay unhealthy; delete the pod to have others chosen"
	)
	s.step(0, "a", healthy)
	s.step(1, "a", unhealthy)
	s.check(t, "1 "+planned)
	s.step(60)
	s.check(t)
	if want := begin.Add(61 * time.Second); !s.state.Wake.Equal(want) {
		t.Errorf("the next step is due at %s, want %s", s.state.Wake, want)
	}
	s.step(61)
	s.check(t, "61 "+acted)
	if id := s.state.Acts[0].ContainerID; id != "a-0" {
		t.Errorf("stopped is %q", id)
	}
	a.Containers["main"] = Container{ID: "a-1", Started: begin.Add(62 * time.Second)}
	s.step(62)
	s.step(300, "a", unknown) // its plugin is updated
	s.step(301, "a", unhealthy)
	s.step(900)
	s.check(t)
	s.step(901, "a", healthy)
	if len(s.state.Acts) != 0 {
		t.Errorf("remembered is %+v", s.state.Acts)
	}
	s.step(902, "a", unhealthy)
	s.step(962)
	s.check(t, "902 "+planned, "962 "+acted)
}

// Flaps and drivers that are away do nothing, and say so.
func TestHoldOff(t *testing.T) {
	s := &story{rules: rulesOf(t, "fail-pod")}
	s.pod("a", "")
	const planned = "a DeviceFailurePlanned: The pod is ended and fails in 1m0s, unless that is over by " +
		"then: " + gpuA + hot
	s.step(0, "a", unhealthy)
	s.step(59, "a", healthy)
	s.step(60, "a", unhealthy)
	s.step(119, "a", unknown)
	s.step(200)
	s.step(201, "a", unhealthy)
	s.step(261)
	s.step(262, "a", healthy) // it ends anyway
	s.step(263, "a", unhealthy)
	s.step(999)
	s.check(t, "0 "+planned, "59 a DeviceFailureAverted: "+gpuA+" is healthy again: nothing is done",
		"60 "+planned, "119 a DeviceFailureAverted: "+gpuA+" is not known to be unhealthy any more: its "+
			"health is unknown: nothing is done", "201 "+planned,
		"261 a DeviceFailed: Device gpu-a of example.com/gpu has been unhealthy for 1m0s, says the device "+
			"plugin: hot; the pod is ended and fails")
}

// Of one workload one pod is disrupted in a minute, the others later; others do not wait.
func TestWorkloadsTurns(t *testing.T) {
	s := &story{rules: rulesOf(t, "fail-pod:0s")}
	s.pod("a", "set")
	s.pod("b", "set")
	s.pod("c", "other")
	s.step(0, "a", unhealthy, "b", unhealthy, "c", unhealthy)
	var acted []string
	for _, line := range s.out {
		if words := strings.Fields(line); words[2] != ReasonPlanned+":" {
			acted = append(acted, strings.Join(words[:3], " "))
		}
	}
	want := "0 a DeviceFailed:, 0 b DeviceFailurePostponed:, 0 c DeviceFailed:"
	if got := strings.Join(acted, ", "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if last := s.out[len(s.out)-2]; !strings.Contains(last, "but not before 2026-01-02T03:01:00Z: pod "+
		"ns/other of the same controller was disrupted a moment ago (--device-failure-spacing)") {
		t.Errorf("postponed: %s", last)
	}
	s.out = nil
	delete(s.pods, "a") // it is gone, which changes nothing
	s.step(1)
	s.step(59)
	s.check(t)
	s.step(60)
	if len(s.out) != 1 || !strings.HasPrefix(s.out[0], "60 b DeviceFailed: ") {
		t.Errorf("then: %q", s.out)
	}
	s.rules.Pause = 0
	s.state, s.out = State{}, nil
	s.pod("a", "set")
	s.step(100, "a", unhealthy, "b", unhealthy, "c", healthy)
	if got := strings.Count(strings.Join(s.out, "\n"), "DeviceFailed:"); got != 2 {
		t.Errorf("without a pause %d are disrupted: %q", got, s.out)
	}
}

// What was done outlives the agent: it is not done again, and a container that still runs is known.
func TestActsOutliveTheAgent(t *testing.T) {
	s := &story{rules: rulesOf(t, "restart-container")}
	s.pod("a", "set")
	s.pod("b", "set")
	s.step(0, "a", unhealthy)
	s.step(60)
	s.out = nil
	s.state = State{Acts: s.state.Acts} // a restart
	s.step(61)
	s.step(70, "b", unhealthy)
	s.step(1000)
	for _, line := range s.out {
		if strings.Contains(line, " a ") {
			t.Errorf("done again: %s", line)
		}
	}
	s.rules = rulesOf(t, "fail-pod") // another setting is another matter
	s.out = nil
	s.step(1001)
	if len(s.out) != 2 {
		t.Errorf("under another setting: %q", s.out)
	}
}

// Nothing to restart is nothing restarted, and no turn of the workload is taken.
func TestNothingToRestart(t *testing.T) {
	s := &story{rules: rulesOf(t, "restart-container")}
	a := s.pod("a", "set")
	s.pod("b", "set")
	s.step(0, "a", unhealthy, "b", unhealthy)
	a.Containers["main"] = Container{ID: "a-1", Started: begin.Add(20 * time.Second)}
	s.step(60)
	var done []string
	for _, one := range s.state.Acts {
		done = append(done, string(one.Pod)+" "+one.ContainerID)
	}
	if got := strings.Join(done, ", "); got != "a , b b-0" {
		t.Errorf("done are %q", got)
	}
	if line := s.out[2]; !strings.Contains(line, "container main is not restarted, since it has begun after that") {
		t.Errorf("told: %s", line)
	}
	a.Containers["main"] = Container{}
	_, _, message := Effect{Kind: Acted, Rule: Rule{Action: RestartContainer}, Container: "main",
		Devices: []Device{a.Devices[0].Device}}.Event(Facts{})
	if !strings.Contains(message, "since it does not run") {
		t.Errorf("told: %s", message)
	}
}

// Each action has its words; a container that is not started again is said to be.
func TestWords(t *testing.T) {
	claim := Device{Container: "main", Resource: "claim gpus", Driver: "gpu.example.com", ID: "gpu-0"}
	restart := Effect{Kind: Planned, Container: "main", Rule: Rule{RestartContainer, 0}, Devices: []Device{claim}}
	if _, _, got := restart.Event(Facts{Never: true}); got != "Container main is stopped, and not started "+
		"again since its restart policy is Never, now: device gpu-0 of claim gpus (driver gpu.example.com) "+
		"is unhealthy (--device-failure-policy)" {
		t.Error(got)
	}
	event := Effect{Kind: Acted, Container: "main", Rule: Rule{Event, time.Minute}, Devices: []Device{claim},
		Act: Act{At: begin.Add(time.Minute), Since: begin}}
	if _, _, got := event.Event(Facts{}); got != "Device gpu-0 of claim gpus (driver gpu.example.com) has "+
		"been unhealthy for 1m0s; container main goes on; delete the pod to have another device chosen" {
		t.Error(got)
	}
	for want, o := range map[string]Outlook{
		"unhealthy for 2m0s": {Since: begin, Action: None},
		"unhealthy for 2m0s; in 30s the pod is ended and fails, unless it is healthy by then": {Since: begin,
			Action: FailPod, Due: begin.Add(150 * time.Second)},
		"unhealthy for 2m0s; the container was restarted once 1m0s ago": {Since: begin,
			Action: RestartContainer, Done: begin.Add(time.Minute)},
	} {
		if got := o.String(begin.Add(2 * time.Minute)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
