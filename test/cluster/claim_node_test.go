package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	"sigs.k8s.io/yaml"

	"github.com/numalet/numalet/test/cluster/drivers"
	"github.com/numalet/numalet/test/harness"
)

// claimDrivers are the drivers of a scenario's pod: POD.io comes first.
type claimDrivers struct {
	running []*drivers.Driver
	// told counts, for each driver, the calls that are recorded already.
	reported map[*drivers.Driver]int
}

func (s *scenarioNode) driversOf(pod string) *claimDrivers {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drivers == nil {
		s.drivers = map[string]*claimDrivers{}
	}
	if s.drivers[pod] == nil {
		s.drivers[pod] = &claimDrivers{reported: map[*drivers.Driver]int{}}
	}
	return s.drivers[pod]
}

// all does one after the other.
func all(each ...act) act {
	return func(ctx context.Context, s *scenarioNode, pod string) error {
		for _, do := range each {
			if err := do(ctx, s, pod); err != nil {
				return err
			}
		}
		return nil
	}
}

// claimDevices is how many devices a scenario's driver has.
const claimDevices = 4

// claimDriver starts a driver and waits until its devices are published. It stops with the scenario,
// when nothing is prepared any more.
func claimDriver(name string) act {
	return func(ctx context.Context, s *scenarioNode, pod string) error {
		of, name := s.driversOf(pod), strings.ReplaceAll(name, "POD", pod)
		d := s.Driver(drivers.Config{Name: name, Devices: claimDevices, CDI: s.cdi})
		of.running = append(of.running, d)
		s.atEnd(pod, func() { s.endDriver(ctx, pod, d) })
		if err := d.Start(ctx); err != nil {
			return err
		}
		return s.awaitSlices(ctx, name)
	}
}

// atEnd adds what happens when the scenario has ended.
func (s *scenarioNode) atEnd(pod string, do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.stops[pod]
	s.stops[pod] = func() {
		if before != nil {
			before()
		}
		do()
	}
}

// endDriver waits until nothing is prepared, and stops the driver.
func (s *scenarioNode) endDriver(ctx context.Context, pod string, d *drivers.Driver) {
	of := s.driversOf(pod)
	for began := time.Now(); ; {
		held, unknown := drivers.Held(of.calls())
		if len(held)+len(unknown) == 0 {
			break
		}
		if time.Since(began) > harness.Patience || !sleep(ctx, 50*time.Millisecond) {
			s.Called(pod, "left", fmt.Sprintf("prepared: %v, unknown: %v", held, unknown))
			break
		}
	}
	s.tell(pod)
	if err := d.Stop(); err != nil {
		s.Called(pod, "left", err.Error())
	}
}

// calls returns the calls to all drivers in the order they began.
func (of *claimDrivers) calls() (all []drivers.Call) {
	for _, d := range of.running {
		all = append(all, d.Calls()...)
	}
	slices.SortStableFunc(all, func(a, b drivers.Call) int { return a.Began.Compare(b.Began) })
	return all
}

func (s *scenarioNode) awaitSlices(ctx context.Context, driver string) error {
	for began := time.Now(); ; {
		all, err := s.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{
			FieldSelector: "spec.nodeName=" + s.Name + ",spec.driver=" + driver})
		switch {
		case err != nil:
			return err
		case len(all.Items) > 0:
			return nil
		case time.Since(began) > harness.Patience:
			return fmt.Errorf("waited %v in vain for devices of %s", harness.Patience, driver)
		case !sleep(ctx, 50*time.Millisecond):
			return ctx.Err()
		}
	}
}

func first(s *scenarioNode, pod string) *drivers.Driver { return s.driversOf(pod).running[0] }

func stopDriver(_ context.Context, s *scenarioNode, pod string) error { return first(s, pod).Stop() }
func killDriver(_ context.Context, s *scenarioNode, pod string) error { return first(s, pod).Kill() }

// awayDriver stops the driver, and waits until a kubelet has seen that: it looks once a second.
func awayDriver(ctx context.Context, s *scenarioNode, pod string) error {
	err := stopDriver(ctx, s, pod)
	time.Sleep(2 * time.Second)
	return err
}

func startDriver(ctx context.Context, s *scenarioNode, pod string) error {
	return first(s, pod).Start(ctx)
}

// roll starts a second instance of the driver, and stops the first when the agent knows it.
func roll(ctx context.Context, s *scenarioNode, pod string) error {
	of := s.driversOf(pod)
	d := s.Driver(drivers.Config{Name: pod + ".io", Devices: 4, CDI: s.cdi, Instance: "next"})
	of.running = append(of.running, d)
	s.atEnd(pod, func() { s.endDriver(ctx, pod, d) })
	if err := d.Start(ctx); err != nil {
		return err
	}
	for began := time.Now(); !isRegistered(d); {
		if time.Since(began) > harness.Patience || !sleep(ctx, 50*time.Millisecond) {
			return errors.New("the second instance is not registered")
		}
	}
	return of.running[0].Stop()
}

func isRegistered(d *drivers.Driver) bool {
	return slices.ContainsFunc(d.Calls(), func(c drivers.Call) bool {
		return c.Method == "NotifyRegistrationStatus" && c.Err == nil
	})
}

func callTrouble(t drivers.Trouble) act {
	return func(_ context.Context, s *scenarioNode, pod string) error {
		first(s, pod).Set(t)
		return nil
	}
}

func failAlways(method string) act {
	return callTrouble(drivers.Trouble{Before: func(_ context.Context, c drivers.Call) error {
		if c.Method == method {
			return status.Error(codes.Internal, "it is broken")
		}
		return nil
	}})
}

func failOnce(method string) act {
	return func(_ context.Context, s *scenarioNode, pod string) error {
		d := first(s, pod)
		d.Set(drivers.Trouble{Before: func(_ context.Context, c drivers.Call) error {
			if c.Method != method {
				return nil
			}
			d.Set(drivers.Trouble{})
			return status.Error(codes.Internal, "it is broken")
		}})
		return nil
	}
}

// sick lets the driver say that its devices have failed.
func sick(_ context.Context, s *scenarioNode, pod string) error {
	var report healthv1.NodeWatchResourcesResponse
	for n := range claimDevices {
		report.Devices = append(report.Devices, &healthv1.DeviceHealth{Health: healthv1.HealthStatus_UNHEALTHY,
			Device:  &healthv1.DeviceIdentifier{PoolName: s.Name, DeviceName: fmt.Sprintf("device-%02d", n)},
			Message: "it is hot", LastUpdatedTime: time.Now().Unix(), HealthCheckTimeoutSeconds: 3600})
	}
	raw, err := proto.Marshal(&report)
	first(s, pod).Set(drivers.Trouble{Answer: func(c drivers.Call, answer []byte) []byte {
		if c.Method != "NodeWatchResources" {
			return answer
		}
		return raw
	}})
	return err
}

// waitFor lets some time pass.
func waitFor(d time.Duration) act {
	return func(ctx context.Context, _ *scenarioNode, _ string) error {
		if !sleep(ctx, d) {
			return ctx.Err()
		}
		return nil
	}
}

// saysSick reports whether a container's status says that a device has failed.
func saysSick(p *v1.Pod) bool {
	return slices.ContainsFunc(statuses(p), func(c v1.ContainerStatus) bool {
		return slices.ContainsFunc(c.AllocatedResourcesStatus, func(of v1.ResourceStatus) bool {
			return slices.ContainsFunc(of.Resources, func(h v1.ResourceHealth) bool {
				return h.Health == v1.ResourceHealthStatusUnhealthy
			})
		})
	})
}

// slowPrepare and slowUnprepare let such a call take some seconds.
var slowPrepare, slowUnprepare = callSlowly(drivers.Prepare), callSlowly(drivers.Unprepare)

func callSlowly(method string) act {
	return callTrouble(drivers.Trouble{Before: func(ctx context.Context, c drivers.Call) error {
		if c.Method == method && !sleep(ctx, 4*time.Second) {
			return ctx.Err()
		}
		return nil
	}})
}

func useClass(text, name string) string { return strings.ReplaceAll(text, "CLASS", name) }

// objects creates objects for claims; classes may exist already.
func claimObjects(texts ...string) act {
	return func(ctx context.Context, s *scenarioNode, pod string) error {
		for _, text := range texts {
			raw, err := yaml.YAMLToJSON([]byte(strings.ReplaceAll(text, "POD", pod)))
			if err != nil {
				return err
			}
			is, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
			if err != nil {
				return err
			}
			api := s.Client.ResourceV1()
			switch is := is.(type) {
			case *resourcev1.DeviceClass:
				_, err = api.DeviceClasses().Create(ctx, is, metav1.CreateOptions{})
				if apierrors.IsAlreadyExists(err) {
					err = nil
				}
			case *resourcev1.ResourceClaimTemplate:
				_, err = api.ResourceClaimTemplates(s.Namespace).Create(ctx, is, metav1.CreateOptions{})
			case *resourcev1.ResourceClaim:
				_, err = api.ResourceClaims(s.Namespace).Create(ctx, is, metav1.CreateOptions{})
			default:
				err = fmt.Errorf("%T is not for claims", is)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

func isBound(p *v1.Pod) bool { return p.Spec.NodeName != "" }

// other is the name of another pod of a scenario.
func other(pod string) string { return pod + "-other" }

// another creates a second pod and waits until it is ready.
func another(spec string) act {
	return func(ctx context.Context, s *scenarioNode, pod string) error {
		made, err := scenario{name: pod, spec: spec}.pod(1, s)
		if err != nil {
			return err
		}
		made.Name = other(pod)
		s.scheduled(made)
		if _, err := s.Client.CoreV1().Pods(s.Namespace).Create(ctx, made, metav1.CreateOptions{}); err != nil {
			return err
		}
		return s.await(ctx, other(pod), step{until: isReady, stay: time.Second})
	}
}

// scheduled lets the scheduler choose the node, which allocates claims.
func (s *scenarioNode) scheduled(pod *v1.Pod) {
	pod.Spec.NodeSelector = map[string]string{v1.LabelHostname: s.Name}
}

func endOther(ctx context.Context, s *scenarioNode, pod string) error {
	if err := remove(-1)(ctx, s, other(pod)); err != nil {
		return err
	}
	for began := time.Now(); s.seen(other(pod)) != nil || s.ready(other(pod)); {
		if time.Since(began) > harness.Patience || !sleep(ctx, 20*time.Millisecond) {
			return errors.New("the other pod does not end")
		}
	}
	return nil
}

// allowAdmin allows claims with administrative access in the namespaces.
func allowAdmin(t *testing.T, sides []*scenarioNode) {
	t.Helper()
	for _, s := range sides {
		if _, err := s.Client.CoreV1().Namespaces().Patch(t.Context(), s.Namespace, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"resource.kubernetes.io/admin-access":"true"}}}`),
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}
