package cluster_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
)

// check returns what is wrong when the node is quiet.
func (s *observed) check(w *workloads) error {
	var errs []error
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	for _, name := range w.names() {
		add(s.asWanted(w.of[name]))
	}
	active := map[types.UID]bool{}
	ours := map[types.UID]bool{}
	for name, p := range s.api {
		of := w.of[p.Labels["want"]]
		if of == nil || of.gone {
			add(fmt.Errorf("pod %s is in the API server, and nobody wants it: %s, deleted %v",
				name, p.Status.Phase, p.DeletionTimestamp))
			continue
		}
		here, known := s.here[name]
		if !known {
			add(fmt.Errorf("the agent does not know pod %s", name))
			continue
		}
		ours[here.UID] = true
		active[here.UID] = !ended(p)
		add(about(name, s.agrees(of, &p, &here)))
	}
	for name := range s.here {
		if _, there := s.api[name]; !there {
			add(fmt.Errorf("the agent has pod %s, which the API server has not", name))
		}
	}
	add(s.nothingElse(ours, active))
	add(s.nothingTwice())
	return errors.Join(errs...)
}

func about(name types.NamespacedName, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("pod %s: %w", name.Name, err)
}

func ended(p v1.Pod) bool {
	return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
}

// asWanted returns what is wrong with the number and kind of pods of a workload.
func (s *observed) asWanted(w *desired) error {
	if w.gone {
		return fmt.Errorf("%s is being removed", w.name)
	}
	found := 0
	for name, p := range s.api {
		if p.Labels["want"] != w.name {
			continue
		}
		found++
		switch {
		case p.DeletionTimestamp != nil:
			return fmt.Errorf("pod %s is Terminating since %s: %s", name, p.DeletionTimestamp,
				p.Status.Phase)
		case p.Labels["generation"] != w.labels()["generation"]:
			return fmt.Errorf("pod %s is of generation %s, wanted is %d", name,
				p.Labels["generation"], w.generation)
		case w.kind == job && !ended(p), w.kind != job && !runs(&p):
			return fmt.Errorf("pod %s is %s: %s %s; %+v", name, p.Status.Phase, p.Status.Reason,
				p.Status.Message, p.Status.ContainerStatuses)
		}
		for _, c := range p.Status.ContainerStatuses {
			if t := c.State.Terminated; w.kind == job && (t == nil || t.ExitCode != w.script.exit) {
				return fmt.Errorf("pod %s has ended with %+v, want %d", name, t, w.script.exit)
			}
			if c.RestartCount < w.script.crashes {
				return fmt.Errorf("pod %s was restarted %d times, want %d", name, c.RestartCount,
					w.script.crashes)
			}
		}
	}
	if found != w.pods() {
		return fmt.Errorf("%s has %d pods, want %d", w.name, found, w.pods())
	}
	return nil
}

// agrees compares what the API server has of a pod with the agent, the runtime and the state file.
func (s *observed) agrees(w *desired, p, here *v1.Pod) error {
	if w.kind != static && p.UID != here.UID {
		return fmt.Errorf("its UID is %s in the API server, %s here", p.UID, here.UID)
	}
	if p.Status.Phase != here.Status.Phase {
		return fmt.Errorf("it is %s in the API server, %s here", p.Status.Phase, here.Status.Phase)
	}
	for _, c := range p.Status.ContainerStatuses {
		if err := s.isTrue(here.UID, c); err != nil {
			return fmt.Errorf("container %s: %w", c.Name, err)
		}
	}
	held := s.held.Pods[here.UID].Containers["main"]
	if ended(*p) {
		return nil
	}
	if got := s.addresses[here.UID]; p.Status.PodIP != got {
		return fmt.Errorf("its address is %q, the sandbox's %q", p.Status.PodIP, got)
	}
	if len(held.Devices()) == 0 && w.gpus > 0 || held.CPUs().Size() != w.cpus {
		return fmt.Errorf("it has %+v, and wants %d CPUs and %d devices", held, w.cpus, w.gpus)
	}
	return s.saysWhatIsHeld(p.Name+"/main", s.newest(here.UID, "main"), held)
}

// isTrue compares a container's status with the newest container of the runtime. An ended one may
// have been removed there.
func (s *observed) isTrue(uid types.UID, c v1.ContainerStatus) error {
	is := s.newest(uid, c.Name)
	if is == nil {
		if c.State.Running != nil {
			return errors.New("it is said to run, and the runtime has none")
		}
		return nil
	}
	if _, id, _ := strings.Cut(c.ContainerID, "://"); id != is.Id ||
		c.RestartCount != int32(is.Metadata.Attempt) {
		return fmt.Errorf("it is said to be %s after %d restarts, and is %s, attempt %d", id,
			c.RestartCount, is.Id, is.Metadata.Attempt)
	}
	runs := is.State == runtimeapi.ContainerState_CONTAINER_RUNNING
	switch {
	case runs != (c.State.Running != nil):
		return fmt.Errorf("it is said to be %+v, and is %s", c.State, is.State)
	case runs != c.Ready:
		return fmt.Errorf("ready is %v, and it is %s", c.Ready, is.State)
	case runs && c.State.Running.StartedAt.Unix() != time.Unix(0, is.StartedAt).Unix():
		return fmt.Errorf("it is said to run since %s, and does since %s", c.State.Running.StartedAt,
			time.Unix(0, is.StartedAt))
	case !runs && c.State.Terminated != nil && c.State.Terminated.ExitCode != is.ExitCode:
		return fmt.Errorf("it is said to have ended with %d, and has with %d",
			c.State.Terminated.ExitCode, is.ExitCode)
	}
	return nil
}

// saysWhatIsHeld compares a container's assignment with what the agent's APIs and the runtime
// report.
func (s *observed) saysWhatIsHeld(name string, is *runtimeapi.ContainerStatus,
	held allocation.Container) error {
	var ids []string
	for _, d := range held.Devices() {
		ids = append(ids, d.IDs...)
	}
	var reported []string
	for _, d := range s.reported[name].GetDevices() {
		reported = append(reported, d.DeviceIds...)
	}
	slices.Sort(ids)
	slices.Sort(reported)
	place := slices.Sorted(slices.Values(s.places[name].Devices[gpu]))
	if !slices.Equal(ids, reported) || !slices.Equal(ids, place) {
		return fmt.Errorf("it holds devices %q; podresources says %q, /placements %q", ids, reported,
			place)
	}
	var own []int
	for _, id := range s.reported[name].GetCpuIds() {
		own = append(own, int(id))
	}
	if cpuset.New(own...).String() != held.CPUs().String() ||
		s.places[name].Exclusive == held.CPUs().IsEmpty() {
		return fmt.Errorf("it holds CPUs %s; podresources says %v, /placements %s", held.CPUs(), own,
			s.places[name].CPUs)
	}
	allowed := is.GetResources().GetLinux().GetCpusetCpus()
	if !held.CPUs().IsEmpty() && allowed != held.CPUs().String() || allowed != s.places[name].CPUs {
		return fmt.Errorf("it may run on CPUs %q, /placements says %q, and it holds %s", allowed,
			s.places[name].CPUs, held.CPUs())
	}
	return nil
}

// nothingElse returns what the runtime, the state file and the file system have of pods that do not
// exist or have ended.
func (s *observed) nothingElse(ours, active map[types.UID]bool) error {
	var errs []error
	ready := map[types.UID]int{}
	for _, sb := range s.sandboxes {
		uid := types.UID(sb.Labels[labelUID])
		if !ours[uid] {
			errs = append(errs, fmt.Errorf("the runtime has a sandbox of pod %s, %s", uid, sb.State))
		}
		if sb.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready[uid]++
		}
	}
	for uid, count := range ready {
		if count > 1 || !active[uid] {
			errs = append(errs, fmt.Errorf("pod %s has %d ready sandboxes", uid, count))
		}
	}
	for uid, of := range s.containers {
		for name, all := range of {
			if len(all) > 2 || !ours[uid] {
				errs = append(errs, fmt.Errorf("the runtime has %d containers %s of pod %s", len(all),
					name, uid))
			}
		}
	}
	for uid, p := range s.held.Pods {
		if !active[uid] {
			errs = append(errs, fmt.Errorf("pod %s (%s) holds what it should not", p.Name, uid))
		}
	}
	for uid, what := range s.left {
		if !ours[uid] {
			errs = append(errs, fmt.Errorf("there still is %s", what))
		}
	}
	return errors.Join(errs...)
}

// nothingTwice returns CPUs and devices that two pods hold.
func (s *observed) nothingTwice() error {
	owner := map[string]string{}
	var errs []error
	take := func(what, pod string) {
		if other, taken := owner[what]; taken {
			errs = append(errs, fmt.Errorf("pods %s and %s both hold %s", pod, other, what))
		}
		owner[what] = pod
	}
	for _, p := range s.held.Pods {
		for _, c := range p.Containers {
			for _, id := range c.CPUs().List() {
				take(fmt.Sprintf("CPU %d", id), p.Name)
			}
			for _, d := range c.Devices() {
				for _, id := range d.IDs {
					take(d.Resource+" "+id, p.Name)
				}
			}
		}
	}
	return errors.Join(errs...)
}
