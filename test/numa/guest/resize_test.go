package guest_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/internal/apitest"
	"github.com/numalet/numalet/internal/podtest"
)

// sizes are what the pod of testResized asks for: main has CPUs of its own, side a part of one.
type sizes struct{ main, side, volume string }

func (s sizes) in(p *v1.Pod) {
	p.Spec.Containers[0].Resources = podtest.Requirements(s.main)
	p.Spec.Containers[1].Resources = podtest.Requirements(s.side)
	limit := resource.MustParse(s.volume)
	p.Spec.Volumes[0].EmptyDir.SizeLimit = &limit
}

// resizedPod returns a pod with these sizes.
func resizedPod(s sizes) *v1.Pod {
	pod := podtest.New("default/sized", podtest.UID("3f1c0a52-0000-4000-8000-000000000001"),
		podtest.Guaranteed("main cpu=1 memory=1Mi", "side cpu=1 memory=1Mi"))
	pod.Generation, pod.Spec.NodeName = 1, "node"
	pod.Spec.HostNetwork = true // one of its own takes the emulator seconds
	pod.Spec.TerminationGracePeriodSeconds = new(int64)
	pod.Spec.Volumes = []v1.Volume{{Name: "shm", VolumeSource: v1.VolumeSource{
		EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}}}
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Image, pod.Spec.Containers[i].Args = containerd.WorkImage, []string{"--print"}
	}
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "shm", MountPath: "/shm"}}
	s.in(pod)
	return pod
}

// testResized: a pod is resized, and the kernel has at each step what its status says. It comes from an API
// server, since only there pods can be resized. g is the original.
func testResized(as, g guest) {
	gates, args, pool := g.Settings["featureGates"], g.Args, as.pool()
	first := sizes{"cpu=4 memory=64Mi", "cpu=500m memory=64Mi", "16Mi"} // it needs a node whose CPUs are all free
	api, kubeconfig := apitest.Start(as.t, resizedPod(first))
	g.Settings["featureGates"] = map[string]bool{
		"InPlacePodVerticalScalingExclusiveCPUs": true, "InPlacePodVerticalScalingExclusiveMemory": true,
		"InPlacePodVerticalScalingMemoryBackedVolumes": true,
	}
	g.Args = append(slices.Clone(args), "--kubeconfig="+kubeconfig)
	g.Kill()
	g.Start()
	var own cpuset.CPUSet
	for i, s := range []sizes{
		first, {"cpu=2 memory=128Mi", "cpu=1500m memory=32Mi", "32Mi"}, {"cpu=4 memory=32Mi", "cpu=250m memory=64Mi", "8Mi"},
	} {
		if i > 0 {
			api.Change(func(p *v1.Pod) { p.Generation++; s.in(p) })
		}
		api.Await(as.t, "it does not have "+fmt.Sprint(s), func(p *v1.Pod) bool { return hasAll(p) })
		pod, _ := api.Pod()
		now := as.sized(pod)
		if i == 0 {
			own = now
		}
		if i == 1 && !now.IsSubsetOf(own) || i == 2 && !now.Equals(own) {
			as.t.Errorf("it started with CPUs %s and has %s", own, now)
		}
	}
	g.Settings["featureGates"], g.Args = gates, args
	g.Kill()
	g.Start()
	as.shared("shared", pool) // without an API server nobody wants the pod
}

// hasAll reports whether the pod's status has what its spec asks for, and nothing is on the way.
func hasAll(p *v1.Pod) bool {
	if p.Status.ObservedGeneration != p.Generation || len(p.Status.ContainerStatuses) != len(p.Spec.Containers) ||
		slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.PodResizePending || c.Type == v1.PodResizeInProgress
		}) {
		return false
	}
	for i, c := range p.Status.ContainerStatuses {
		want := p.Spec.Containers[i].Resources.Limits
		if c.State.Running == nil || c.Resources == nil || c.Resources.Limits.Memory().Cmp(*want.Memory()) != 0 ||
			c.AllocatedResources.Cpu().Cmp(*want.Cpu()) != 0 {
			return false
		}
	}
	return true
}

// sized compares the kernel's values with the pod's status, and returns the CPUs of its container main.
func (g guest) sized(p *v1.Pod) (own cpuset.CPUSet) {
	g.t.Helper()
	t, memory, milli := g.t, int64(0), int64(0)
	group := filepath.Join(cgroupDir, "kubepods", "pod"+string(p.UID))
	for i, c := range p.Spec.Containers {
		_, id, _ := strings.Cut(p.Status.ContainerStatuses[i].ContainerID, "://")
		at, quota := filepath.Join(group, id), "max 100000"
		memory, milli = memory+c.Resources.Limits.Memory().Value(), milli+c.Resources.Limits.Cpu().MilliValue()
		cpus := saidList(t, at, "cpuset.cpus")
		if c.Name == "main" {
			own = cpus
			if int64(cpus.Size()) != c.Resources.Limits.Cpu().Value() || !wholeCores(t, cpus) {
				t.Errorf("main has CPUs %s and asks for %s", cpus, c.Resources.Limits.Cpu())
			}
			if nodes := nodesOf(t, cpus); said(t, at, "cpuset.mems") != nodes.String() {
				t.Errorf("main has CPUs on nodes %s and memory on %s", nodes, said(t, at, "cpuset.mems"))
			}
		} else {
			quota = fmt.Sprintf("%d 100000", 100*c.Resources.Limits.Cpu().MilliValue())
		}
		g.says(at, "cpu.max", quota)
		g.says(at, "memory.max", fmt.Sprint(c.Resources.Limits.Memory().Value()))
		row(t, "%s: CPUs %s, cpu.max %s, memory.max %s", c.Name, cpus, said(t, at, "cpu.max"), said(t, at, "memory.max"))
	}
	g.says(group, "memory.max", fmt.Sprint(memory))
	g.says(group, "cpu.max", fmt.Sprintf("%d 100000", 100*milli))
	var stat unix.Statfs_t
	dir := filepath.Join(g.Root, "pods", string(p.UID), "volumes", "kubernetes.io~empty-dir", "shm")
	want := p.Spec.Volumes[0].EmptyDir.SizeLimit.Value()
	if err := unix.Statfs(dir, &stat); err != nil || int64(stat.Blocks)*stat.Bsize != want {
		t.Errorf("%s has %d bytes, %v; want %d", dir, int64(stat.Blocks)*stat.Bsize, err, want)
	}
	return own
}

func (g guest) says(group, file, want string) {
	g.t.Helper()
	if got := said(g.t, group, file); got != want {
		g.t.Errorf("%s of %s is %q, want %q", file, group, got, want)
	}
}
