package status

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

// makePod returns a pod with the restart policy and containers of a line such as
// "Always first side~ | web db".
func makePod(line string) *v1.Pod {
	return podtest.New("ns/pod", podtest.UID("uid"), podtest.Line(line),
		func(p *v1.Pod) { p.Generation = 3 })
}

// observe makes the runtime's report from words, newest first: "sandbox" or "sandbox!" (not ready);
// "web" runs, "web=1" exited with 1, "web=oom" with 0 although the kernel killed one of its
// processes, "web?" is in an unknown state, "web-" was only created. The containers after a sandbox
// belong to it. Containers of one name count their attempts down to 0.
func observe(words string) cri.Pod {
	pod := cri.Pod{UID: "uid", Namespace: "ns", Name: "pod", ReadAt: at(100)}
	attempts := map[string]uint32{}
	fields := strings.Fields(words)
	for i, word := range fields {
		name, _, _ := strings.Cut(strings.TrimRight(word, "!?-"), "=")
		if name == "sandbox" {
			pod.Sandboxes = append(pod.Sandboxes, cri.Sandbox{
				ID: fmt.Sprintf("s%d", i), Ready: !strings.HasSuffix(word, "!"),
				IPs: []string{"10.0.0.1"}, CreatedAt: at(10 - len(pod.Sandboxes)),
			})
			continue
		}
		c := cri.Container{
			ID: word, Name: name, State: cri.ContainerRunning,
			From:      cri.Origin{Image: "img", ImageRef: "img@sha"},
			StartedAt: at(20), CreatedAt: at(20),
			SandboxID: pod.Sandboxes[len(pod.Sandboxes)-1].ID,
		}
		switch {
		case strings.HasSuffix(word, "?"):
			c.State = cri.ContainerUnknown
		case strings.HasSuffix(word, "-"):
			c.State, c.StartedAt = cri.ContainerCreated, time.Time{}
		case strings.Contains(word, "="):
			c.State, c.Exit.At, c.Exit.Reason = cri.ContainerExited, at(30), "Error"
			if strings.HasSuffix(word, "=oom") {
				c.Exit.Reason = "OOMKilled"
			} else {
				fmt.Sscanf(word, name+"=%d", &c.Exit.Code)
			}
		}
		pod.Containers = append(pod.Containers, c)
	}
	for i := len(pod.Containers) - 1; i >= 0; i-- {
		c := &pod.Containers[i]
		c.Attempt = attempts[c.Name]
		attempts[c.Name]++
	}
	return pod
}

// story formats a status: phase, containers, conditions that are not true.
func story(s v1.PodStatus) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", s.Phase)
	if s.Reason != "" {
		fmt.Fprintf(&b, " %s: %s", s.Reason, s.Message)
	}
	for _, c := range append(s.InitContainerStatuses, s.ContainerStatuses...) {
		fmt.Fprintf(&b, "\n%s #%d %s", c.Name, c.RestartCount, state(c.State))
		if c.LastTerminationState != (v1.ContainerState{}) {
			fmt.Fprintf(&b, ", before: %s", state(c.LastTerminationState))
		}
		if c.Ready {
			b.WriteString(", ready")
		} else if ptr.Deref(c.Started, false) {
			b.WriteString(", started")
		}
	}
	for _, c := range s.Conditions {
		if c.Status != v1.ConditionTrue {
			fmt.Fprintf(&b, "\nnot %s: %s", c.Type, c.Reason)
			if c.Message != "" {
				fmt.Fprintf(&b, ": %s", c.Message)
			}
		}
	}
	return b.String()
}

func state(s v1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return fmt.Sprintf("exited %d (%s)", s.Terminated.ExitCode, s.Terminated.Reason)
	case s.Waiting != nil:
		return strings.TrimSuffix("waiting ("+s.Waiting.Reason+") "+s.Waiting.Message, " ")
	default:
		return "nothing"
	}
}
