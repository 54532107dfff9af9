package hollow

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/numalet/numalet/agent"
	"github.com/numalet/numalet/agent/cluster/kubeapi"
	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/internal/await"
)

// Config describes the nodes.
type Config struct {
	// Kubeconfig belongs to a user who may act for all the nodes.
	Kubeconfig string
	// Root holds a directory for each node. Only one process may use it at a time.
	Root string
	// Prefix starts the names of nodes: PREFIX, machine, number.
	Prefix   string
	Machines []Machines
	// Devices are offered by every node; none: each node offers its machine's.
	Devices []Invented
	// Claims: devices are published in ResourceSlices, for claims, in place of as resources of the
	// nodes.
	Claims bool
	Labels map[string]string
	Taints []v1.Taint
	// File is a KubeletConfiguration for the nodes, "": none. Settings are fields that override it.
	File     string
	Settings map[string]any
	// Requests bounds the requests per second of all nodes, besides leases and node statuses. Pace is
	// the number of nodes that start per second.
	Requests, Pace int
}

// node is one node: its name, and what it shares with others.
type node struct {
	*agent.Hollow // nil before the node runs
	name, address string
	shape         *shape
}

// Nodes are the nodes of one process.
type Nodes struct {
	cfg  Config
	kube *kubeapi.Client

	mu      sync.Mutex // guards running
	running []*node
	all     []*node
}

// New reads the machines and the kubeconfig. It sends no requests, and runs nothing.
func New(ctx context.Context, c Config) (*Nodes, error) {
	args, err := c.write()
	if err != nil {
		return nil, err
	}
	out, numbers := &Nodes{cfg: c}, map[string]int{}
	for _, m := range c.Machines {
		s, err := newShape(c, args, m.From)
		if err != nil {
			return nil, err
		}
		machine := m.name()
		for range m.Count {
			n := &node{shape: s,
				name:    fmt.Sprintf("%s%s-%d", c.Prefix, machine, numbers[machine]),
				address: address(nodeAddresses, uint32(len(out.all)))}
			numbers[machine]++
			if wrong := validation.IsDNS1123Subdomain(n.name); len(wrong) > 0 {
				return nil, fmt.Errorf("node name %q: %s; give another --name-prefix, or the "+
					"machine's file another name", n.name, wrong[0])
			}
			out.all = append(out.all, n)
		}
	}
	if len(out.all) == 0 || len(out.all) > MaxNodes {
		return nil, fmt.Errorf("%d nodes: give --machine, with 1 to %d nodes together",
			len(out.all), MaxNodes)
	}
	return out, out.connect(ctx)
}

// connect makes the client that all nodes share.
func (s *Nodes) connect(ctx context.Context) (err error) {
	cfg := s.all[0].shape.cfg
	k := cfg.Kubelet.DeepCopy()
	qps := int32(s.cfg.Requests)
	k.KubeAPIQPS, k.KubeAPIBurst = &qps, 2*qps
	k.EventRecordQPS, k.EventBurst = &qps, 2*qps
	k.RotateCertificates = false // the kubeconfig is not a node's
	s.kube, err = kubeapi.New(ctx, kubeapi.Config{
		Cluster: config.Cluster{Kubeconfig: s.cfg.Kubeconfig}, Kubelet: k,
	})
	return err
}

// Addresses from the networks for benchmarks (RFC 2544), where no host can be reached.
var (
	nodeAddresses = netip.MustParseAddr("198.18.0.1")
	podAddresses  = netip.MustParseAddr("198.19.0.1")
)

// address returns one of the 65534 addresses from first; pods' addresses repeat after these.
func address(first netip.Addr, number uint32) string {
	b, at := first.As4(), number%65534+1
	b[2], b[3] = byte(at>>8), byte(at)
	return netip.AddrFrom4(b).String()
}

// Run runs the nodes until ctx ends or one of them fails.
func (s *Nodes) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.kube.Run(ctx) })
	var pods atomic.Uint32
	next := func() string { return address(podAddresses, pods.Add(1)-1) }
	group.Go(func() error {
		pace := time.NewTicker(time.Second / time.Duration(s.cfg.Pace))
		defer pace.Stop()
		for _, n := range s.all {
			if err := s.join(ctx, n, next); err != nil {
				return err
			}
			group.Go(func() error {
				if err := n.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
					return fmt.Errorf("node %s: %w", n.name, err)
				}
				return nil
			})
			group.Go(func() error {
				s.publish(ctx, n)
				return nil
			})
			s.mu.Lock()
			s.running = append(s.running, n)
			s.mu.Unlock()
			if !await.On(ctx, pace.C) {
				return nil
			}
		}
		return nil
	})
	return group.Wait()
}

// join makes a node that runs until ctx ends. podAddress returns the address of a new pod.
func (s *Nodes) join(ctx context.Context, n *node, podAddress func() string) (err error) {
	n.Hollow, err = n.shape.Join(ctx, agent.HollowConfig{
		Name: n.name, Address: n.address, Dir: filepath.Join(s.cfg.Root, n.name), Kube: s.kube,
		Plugins: n.shape.devices, Runtime: newRuntime(n.address, podAddress),
	})
	return err
}

// removals bounds the nodes that are deleted at a time.
const removals = 16

// Remove deletes the nodes from the cluster, after Run. Their leases and NodeResourceTopologies are
// deleted with them; the cluster removes their pods later.
func (s *Nodes) Remove(ctx context.Context) error {
	var group errgroup.Group
	group.SetLimit(removals)
	var mu sync.Mutex
	var failed []error
	for _, n := range s.all {
		group.Go(func() error {
			err := s.kube.Main().CoreV1().Nodes().Delete(ctx, n.name, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, fmt.Errorf("delete node %s: %w", n.name, err))
			}
			return nil
		})
	}
	_ = group.Wait() // it returns no error
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d nodes are left: %w", len(failed), len(s.all),
			errors.Join(failed[:min(3, len(failed))]...))
	}
	return nil
}

// Counts holds numbers of nodes and pods.
type Counts struct {
	// Nodes is the wanted number; Ready of them are ready at the API server.
	Nodes, Ready int
	// Pods counts the pods on the nodes, by phase.
	Pods map[v1.PodPhase]int
}

// Counts returns the present numbers.
func (s *Nodes) Counts() Counts {
	s.mu.Lock()
	running := s.running[:len(s.running):len(s.running)]
	s.mu.Unlock()
	out := Counts{Nodes: len(s.all), Pods: map[v1.PodPhase]int{}}
	for _, n := range running {
		if ready(n.Object()) {
			out.Ready++
		}
		for _, p := range n.Pods() {
			out.Pods[p.Status.Phase]++
		}
	}
	return out
}

func ready(n *v1.Node) bool {
	if n == nil {
		return false
	}
	_, is := nodeutil.GetNodeCondition(&n.Status, v1.NodeReady)
	return is != nil && is.Status == v1.ConditionTrue
}
