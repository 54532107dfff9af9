package eni

import (
	"context"
	"log"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// agent serves pod resources, which say who has which interfaces.
type agent struct {
	podresources.UnimplementedPodResourcesListerServer
	mu          sync.Mutex
	ids, listed []string
}

func (a *agent) give(ids ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ids = ids
}

// List implements podresources.PodResourcesListerServer.
func (a *agent) List(context.Context, *podresources.ListPodResourcesRequest) (
	*podresources.ListPodResourcesResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{{
		Containers: []*podresources.ContainerResources{{Devices: []*podresources.ContainerDevices{
			{ResourceName: "example.com/other", DeviceIds: []string{"eth2"}},
			{ResourceName: "example.com/eni", DeviceIds: a.ids},
		}}}}}}, nil
}

// GetAllocatableResources implements podresources.PodResourcesListerServer.
func (a *agent) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (
	*podresources.AllocatableResourcesResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &podresources.AllocatableResourcesResponse{Devices: []*podresources.ContainerDevices{
		{ResourceName: "example.com/sriov", DeviceIds: a.listed}}}, nil
}

func serveAgent(t *testing.T, path string) *agent {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	a, server := &agent{}, grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, a)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return a
}

// The offers follow the carrier of real interfaces, and the agent's answers about pods.
func TestRealFollow(t *testing.T) {
	home, pod := newHome(t), newSpace(t)
	k := kernelIn(t, home, pod)
	said := &pages{}
	cfg := Config{
		Interfaces: []Rule{{Resource: "example.com/eni", Names: []string{"eth1"}}},
		Places:     places(t, t.TempDir(), sysfs{t.TempDir(), "/dev"}),
		Log:        log.New(said, "", 0), Kernel: k, Mover: k,
	}
	pods := serveAgent(t, cfg.Places.PodResources)
	p, err := newPlugin(cfg.withDefaults())
	home.must(err)
	p.missedFor = 0
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	defer func() {
		cancel()
		home.must(<-ended)
	}()
	health := func() string {
		if d := p.served["example.com/eni"].Devices(); len(d) == 1 {
			return d[0].GetHealth()
		}
		return ""
	}
	eventually(t, "eth1 is healthy", func() bool { return health() == "Healthy" })
	home.must(home.LinkSetDown(home.link("peth1")))
	eventually(t, "without a carrier it is not", func() bool { return health() == "Unhealthy" })
	if !said.has("eth1 (eth1) is unhealthy: it has no carrier") {
		t.Errorf("the log says %s", said.text.String())
	}
	why := p.keeper.reasons()
	if len(why) != 1 || !strings.HasPrefix(why["eth1"], "it has no carrier") {
		t.Errorf("the agent is told %q", why)
	}
	home.must(home.LinkSetUp(home.link("peth1")))
	eventually(t, "with one it is again", func() bool { return health() == "Healthy" })
	if why := p.keeper.reasons()["eth1"]; why != "" {
		t.Errorf("of a healthy one the agent is told %q", why)
	}

	_, err = p.keeper.allocate("example.com/eni", []string{"eth1"}, "")
	home.must(err)
	pods.give("eth1")
	spoil(home, pod)
	eventually(t, "the pod is known", func() bool {
		p.keeper.mu.Lock()
		defer p.keeper.mu.Unlock()
		return p.keeper.records["eth1"].Seen
	})
	pods.give()
	eventually(t, "the interface is back", func() bool { return !p.keeper.busy() })
	if l := home.link("eth1"); l.Attrs().MTU != 1500 || l.Attrs().Promisc != 0 {
		t.Errorf("it is %+v", l.Attrs())
	}
}

// An XDP program that a container has attached is detached.
func TestRealXDP(t *testing.T) {
	home := newHome(t)
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
	if err != nil {
		t.Skipf("left out: the kernel loads no XDP program here: %v", err)
	}
	defer program.Close()
	k := kernelIn(t, home)
	eth1 := func() Link {
		t.Helper()
		links, err := k.Links()
		home.must(err)
		for _, l := range links {
			if l.State.Name == "eth1" {
				return l
			}
		}
		t.Fatal("there is no eth1")
		return Link{}
	}
	before := eth1()
	home.must(k.inHome(func() error {
		return netlink.LinkSetXdpFd(home.link("eth1"), program.FD())
	}))
	now := eth1()
	if !now.State.XDP {
		t.Fatalf("it is not seen: %+v", now)
	}
	for _, s := range steps(before.State, now, func(string) bool { return false }) {
		home.must(k.Apply(now.Index, s))
	}
	if after := eth1(); after.State.XDP || !after.State.Up {
		t.Errorf("afterwards it is %+v", after)
	}
}
