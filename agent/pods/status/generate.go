package status

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/node/addresses"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// Input holds everything that a pod's status depends on.
type Input struct {
	Pod *v1.Pod
	Facts
	Resize Resize
	// Devices maps containers to the health of their devices.
	Devices map[string][]v1.ResourceStatus
	// Volumes maps volumes to the adverse conditions that their drivers report; those of which nothing
	// is known are not there.
	Volumes map[string][]v1.VolumeHealthCondition
	// Previous is the previous status; zero if there is none.
	Previous v1.PodStatus
	// Messages maps container ids to termination messages.
	Messages map[string]string
	Node     Node
	Stop     Stopping
	Now      time.Time

	derived derived
}

// Resize says how far a pod is on the way to other resources.
type Resize struct {
	// Pending says why the pod does not get those that its source asks for (v1.PodReasonDeferred,
	// v1.PodReasonInfeasible); zero: it has them, or nothing was decided yet.
	Pending Reason
	// InProgress: what runs of the pod does not have all that it was allocated with Generation. Error says
	// what keeps it; "": nothing.
	InProgress bool
	Error      string
	Generation int64
}

// derived holds values computed once from the input.
type derived struct {
	// records holds Observed's containers by name, newest first; was holds Previous by container.
	records map[string][]cri.Container
	was     map[string]*v1.ContainerStatus
	// uninitialized is set while the pod still waits for an init container.
	uninitialized bool
	// restarts names the containers that make all containers restart.
	restarts sets.Set[string]
}

// Node holds the facts about the node in pods' statuses.
type Node struct {
	Runtime string   // name of the container runtime, the scheme of container ids
	HostIPs []string // primary first
	// Handlers are the runtime's handlers.
	Handlers []cri.RuntimeHandler
	// ImageRefs tells which images are mounted as volumes (ImageVolumeWithDigest).
	ImageRefs bool
}

// Stopping says how far the pod's termination has come, and why the pod is ended.
type Stopping struct {
	// Terminating is set once the pod's containers are being stopped for good.
	Terminating bool
	// Holds is set while the pod holds resource claims.
	Holds bool
	// Unready is set if the pod counts as not ready from now on: the node ends it, or its manifest is
	// gone.
	Unready bool
	// Finished is set once nothing of the pod is left to wait for.
	Finished bool
	// Why is the reason if the node ended the pod, such as Evicted; else empty.
	Why Reason
	// OwnLimit: the node ended the pod because it exceeded a limit of its own.
	OwnLimit bool
}

// Generate returns the pod's status.
func Generate(in Input) v1.PodStatus {
	in.derived = derived{
		records: in.Observed.Records(), was: podspec.ByContainer(&in.Previous),
		uninitialized: NextInit(in.Pod, in.Facts) < len(in.Pod.Spec.InitContainers),
		restarts:      RestartAll(in.Pod, in.Observed),
	}
	s := base(in)
	tellContainers(in, &s)
	tellPodResources(in.Pod, &s)
	s.VolumeHealth = volumeHealth(in)
	s.PodIPs = podIPs(in)
	if len(s.PodIPs) > 0 {
		s.PodIP = s.PodIPs[0].IP
	}
	var is v1.PodPhase
	s.Phase, is = phase(in)
	s.Reason, s.Message = in.Stop.Why.Reason, in.Stop.Why.Message
	if s.Reason == "" && podspec.Ended(in.Previous.Phase) {
		s.Reason, s.Message = in.Previous.Reason, in.Previous.Message
	}
	s.Conditions = conditions(in, s, is)
	return s
}

// Refusal begins the message of a pod that the node refuses to run.
const Refusal = "Pod was rejected: "

// Rejected returns the status of a pod that the node refuses to run. It needs only the pod, the
// previous status and the time. Such a pod has no address, not even the host's.
func Rejected(in Input, why Reason) v1.PodStatus {
	s := base(in)
	s.HostIP, s.HostIPs = "", nil
	s.Phase = v1.PodFailed
	s.Reason, s.Message = why.Reason, Refusal+why.Message
	for _, was := range in.Previous.Conditions {
		if !owned(was.Type) {
			s.Conditions = append(s.Conditions, was)
		}
	}
	return s
}

// Waiting returns the status of a pod that the node will run once the reason for waiting is gone.
// It needs the pod, the node, the previous status and the time. The status keeps the host's address
// if it had one, and otherwise has none, since the pod may still be rejected.
func Waiting(in Input, why Reason) v1.PodStatus {
	in.Facts = Facts{}
	s := Generate(in)
	s.Resources, s.AllocatedResources = nil, nil // it has none yet
	s.HostIP, s.HostIPs = in.Previous.HostIP, in.Previous.HostIPs
	s.Reason, s.Message = why.Reason, why.Message
	if c := conditionOf(s, v1.PodReadyToStartContainers); c != nil {
		c.Reason, c.Message = why.Reason, why.Message
	}
	return s
}

func base(in Input) v1.PodStatus {
	s := v1.PodStatus{
		ObservedGeneration:          in.Pod.Generation,
		QOSClass:                    podspec.QOSClass(in.Pod),
		StartTime:                   startTime(in),
		Resize:                      in.Previous.Resize,
		ResourceClaimStatuses:       in.Previous.ResourceClaimStatuses,
		ExtendedResourceClaimStatus: in.Previous.ExtendedResourceClaimStatus,
		NominatedNodeName:           in.Previous.NominatedNodeName,
		VolumeHealth:                in.Previous.VolumeHealth,
	}
	s.NodeAllocatableResourceClaimStatuses = in.Previous.NodeAllocatableResourceClaimStatuses
	for _, ip := range in.Node.HostIPs {
		s.HostIPs = append(s.HostIPs, v1.HostIP{IP: ip})
	}
	if len(in.Node.HostIPs) > 0 {
		s.HostIP = in.Node.HostIPs[0]
	}
	return s
}

// startTime is set once, and not later than the pod's first sandbox, so that a restart of the agent
// does not make the pod look younger.
func startTime(in Input) *metav1.Time {
	start := seconds(in.Now)
	if in.Previous.StartTime != nil {
		start = *in.Previous.StartTime
	}
	if n := len(in.Observed.Sandboxes); n > 0 {
		first := seconds(in.Observed.Sandboxes[n-1].CreatedAt)
		if !first.IsZero() && first.Before(&start) {
			start = first
		}
	}
	return &start
}

// seconds truncates t to the precision of the API, so that a value read back compares equal.
func seconds(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t.Truncate(time.Second))
}

// phase adds the status' own rules to Phase: a final phase stays, it is not reported before the last
// container has stopped and the pod's resource claims are unprepared, and a pod that the node ended
// has failed. Of a pod that waits only for its claims, conditions tell the final phase.
func phase(in Input) (reported, conditions v1.PodPhase) {
	was := in.Previous.Phase
	if podspec.Ended(was) {
		return was, was
	}
	now := Phase(in.Pod, in.Facts)
	running := anyRunning(in.Observed)
	switch {
	case (running || in.Stop.Holds) && podspec.Ended(now):
		reported = cmp.Or(was, v1.PodRunning)
		if running {
			return reported, reported
		}
		return reported, now
	case now == v1.PodPending && was == v1.PodRunning && begunBefore(in):
		return was, was
	case running || in.Stop.Holds || !in.Stop.Terminating:
		return now, now
	case in.Stop.Why.Reason == "" && allSucceeded(in):
		return v1.PodSucceeded, v1.PodSucceeded
	default:
		return v1.PodFailed, v1.PodFailed
	}
}

// begunBefore reports whether every regular container has run before, some of them no longer have a
// record, and no init container runs again.
func begunBefore(in Input) bool {
	lost := false
	for i := range in.Pod.Spec.Containers {
		name := in.Pod.Spec.Containers[i].Name
		if len(in.derived.records[name]) > 0 {
			continue
		}
		if lost = true; Attempt(in.Previous, name) == 0 {
			return false
		}
	}
	for i := range in.Pod.Spec.InitContainers {
		c := &in.Pod.Spec.InitContainers[i]
		records := in.derived.records[c.Name]
		if !podspec.IsSidecar(c) && len(records) > 0 &&
			records[0].State == cri.ContainerRunning {
			return false
		}
	}
	return lost
}

// allSucceeded reports whether every regular container exited with 0 last.
func allSucceeded(in Input) bool {
	ran := Ran(in.Observed)
	for i := range in.Pod.Spec.Containers {
		record, ok := ran[in.Pod.Spec.Containers[i].Name]
		if !ok || record.State != cri.ContainerExited || record.Exit.Code != 0 {
			return false
		}
	}
	return true
}

func anyRunning(observed cri.Pod) bool {
	return slices.ContainsFunc(observed.Containers,
		func(c cri.Container) bool { return c.State == cri.ContainerRunning })
}

// podIPs returns the addresses of the newest ready sandbox, else the previous ones: a pod keeps its
// addresses in the status until it gets others. In the host's network a pod keeps an address even
// if the host's changes, and gets one of the other family when the host does.
func podIPs(in Input) []v1.PodIP {
	var ips []string
	for _, s := range in.Observed.Sandboxes {
		if s.Ready {
			ips = s.IPs
			if in.Pod.Spec.HostNetwork {
				ips = slices.Concat(addressesOf(in.Previous.PodIPs), in.Node.HostIPs)
			}
			break
		}
	}
	primary := in.Node.HostIPs
	if in.Pod.Spec.HostNetwork {
		primary = ips
	}
	ips = addresses.OfPod(ips, primary)
	if len(ips) == 0 {
		return in.Previous.PodIPs
	}
	out := make([]v1.PodIP, 0, len(ips))
	for _, ip := range ips {
		out = append(out, v1.PodIP{IP: ip})
	}
	return out
}

func addressesOf(ips []v1.PodIP) []string {
	out := make([]string, 0, len(ips))
	for _, one := range ips {
		out = append(out, one.IP)
	}
	return out
}
