package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"sigs.k8s.io/yaml"

	"github.com/numalet/numalet/test/cluster/drivers"
	"github.com/numalet/numalet/test/harness"
)

// claimDrivers are the drivers of a scenario's pod: POD.io comes first.
type claimDrivers struct {
	running []*drivers.Driver
	// told counts, for each driver, the calls that are recorded already.
	told map[*drivers.Driver]int
}

func (s *scenarioNode) driversOf(pod string) *claimDrivers {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drivers == nil {
		s.drivers = map[string]*claimDrivers{}
	}
	if s.drivers[pod] == nil {
		s.drivers[pod] = &claimDrivers{told: map[*drivers.Driver]int{}}
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

// claimDriver starts a driver and waits until its devices are published. It stops with the scenario,
// when nothing is prepared any more.
func claimDriver(name string) act {
	return func(ctx context.Context, s *scenarioNode, pod string) error {
		of, name := s.driversOf(pod), strings.ReplaceAll(name, "POD", pod)
		d := s.Driver(drivers.Config{Name: name, Devices: 4, CDI: s.cdi})
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

// followClaims records what becomes of the claims.
func (s *scenarioNode) followClaims(t *testing.T) {
	t.Helper()
	last := map[string]string{}
	followOf(t, s.Client.ResourceV1().RESTClient(), "resourceclaims", s.Namespace,
		func(c *resourcev1.ResourceClaim, gone bool) {
			pod := c.Labels["of"]
			for _, owner := range c.OwnerReferences {
				pod = owner.Name
			}
			is := fmt.Sprintf("reserved for %d", len(c.Status.ReservedFor))
			switch {
			case gone:
				is = "gone"
			case c.Status.Allocation == nil:
				is = "not allocated"
			case c.DeletionTimestamp != nil:
				is += ", deleted"
			}
			if last[c.Name] != is {
				last[c.Name] = is
				s.Called(pod, "claim "+claimName(c.Name, pod), is)
			}
		})
}

var generated = regexp.MustCompile(`-[a-z0-9]{5}$`)

// claimName returns a claim's name without what is of a run.
func claimName(name, pod string) string {
	return generated.ReplaceAllString(strings.TrimPrefix(name, pod+"-"), "-*")
}

// tell records the calls that have ended and are not recorded yet.
func (s *scenarioNode) tell(pod string) {
	of := s.driversOf(pod)
	for _, d := range of.running {
		calls := d.Calls()
		for _, c := range calls[of.told[d]:] {
			if c.Ended.IsZero() && c.Method != "NodeWatchResources" {
				break
			}
			of.told[d]++
			var words []string
			for _, one := range c.Claims {
				word := claimName(one.Name, pod)
				if c.Method == drivers.Prepare {
					word += fmt.Sprintf(" (%d CDI)", len(c.CDI[one.UID]))
				}
				if why := c.Refused[one.UID]; why != "" {
					word += ": " + why
				}
				words = append(words, word)
			}
			slices.Sort(words)
			is := strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Service, c.Method, strings.Join(words, ", ")))
			if c.Err != nil && c.Method != "NodeWatchResources" {
				is += ": " + c.Err.Error()
			}
			field := "driver " // what is about claims; when health is asked for, each agent decides
			if len(c.Claims) == 0 {
				field = c.Method + " of "
			}
			s.calledOnce(pod, field+d.Name(), is)
		}
	}
}

// calledOnce records a call, unless the one before it was the same: agents try again.
func (s *scenarioNode) calledOnce(pod, what, is string) {
	key := pod + " " + what
	s.mu.Lock()
	again := s.lastCall[key] == is
	if s.lastCall == nil {
		s.lastCall = map[string]string{}
	}
	s.lastCall[key] = is
	s.mu.Unlock()
	if !again {
		s.Called(pod, what, is)
	}
}

// mark records at this moment which calls there were, and what the agent tells of the pod's claims.
func mark(when string) act {
	return func(ctx context.Context, s *scenarioNode, pod string) error {
		s.tell(pod)
		for _, d := range s.driversOf(pod).running {
			s.calledOnce(pod, "driver "+d.Name(), "-- "+when)
		}
		told, err := s.podResources(ctx, pod)
		if err != nil {
			return err
		}
		kept, err := s.checkpoint(pod)
		if err != nil {
			return err
		}
		s.Called(pod, "podresources", when+": "+s.nodeless(told))
		s.Called(pod, "checkpoint", when+": "+s.nodeless(kept))
		s.Called(pod, "cdi", when+": "+s.given(pod))
		return nil
	}
}

var uids = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

func (s *scenarioNode) nodeless(text string) string {
	return uids.ReplaceAllString(strings.ReplaceAll(text, s.Name+"/", "NODE/"), "UID")
}

// given lists the CDI devices of the pod's running containers in the runtime.
func (s *scenarioNode) given(pod string) string {
	var out []string
	for _, c := range s.Runtime.State().Containers {
		if c.Subject.Pod != pod || !c.Running() {
			continue
		}
		for _, device := range c.Config.GetCDIDevices() {
			out = append(out, c.Subject.Container+" "+s.nodeless(device.GetName()))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func (s *scenarioNode) podResources(ctx context.Context, pod string) (string, error) {
	conn, err := grpc.NewClient("unix://"+filepath.Join(s.Root, "pod-resources", "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	list, err := podresourcesv1.NewPodResourcesListerClient(conn).List(ctx,
		&podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		return "", err
	}
	var out []string
	for _, p := range list.GetPodResources() {
		for _, c := range p.GetContainers() {
			for _, claim := range c.GetDynamicResources() {
				for _, r := range claim.GetClaimResources() {
					if p.GetName() == pod && p.GetNamespace() == s.Namespace {
						out = append(out, fmt.Sprintf("%s has %s: %s/%s/%s %v", c.GetName(),
							claimName(claim.GetClaimName(), pod), r.GetDriverName(), r.GetPoolName(),
							r.GetDeviceName(), r.GetCdiDevices()))
					}
				}
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, "; "), nil
}

// checkpoint formats what the kubelet's checkpoint has of the pod's claims.
func (s *scenarioNode) checkpoint(pod string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(s.Root, "dra_manager_state"))
	if os.IsNotExist(err) {
		return "", nil
	}
	var outer struct{ Data string }
	var inner struct {
		ClaimInfoStateList []struct {
			ClaimName, Namespace string
			PodUIDs              map[string]any
			DriverState          map[string]json.RawMessage
		}
	}
	if err := errors.Join(err, json.Unmarshal(raw, &outer), json.Unmarshal([]byte(outer.Data), &inner)); err != nil {
		return "", err
	}
	var out []string
	for _, claim := range inner.ClaimInfoStateList {
		if claim.Namespace != s.Namespace || !strings.HasPrefix(claim.ClaimName, pod+"-") {
			continue
		}
		state, err := json.Marshal(claim.DriverState)
		if err != nil {
			return "", err
		}
		text := strings.ReplaceAll(string(state), `"PoolName":"`+s.Name+`"`, `"PoolName":"NODE"`)
		out = append(out, fmt.Sprintf("%s of %d pods: %s", claimName(claim.ClaimName, pod),
			len(claim.PodUIDs), text))
	}
	slices.Sort(out)
	return strings.Join(out, "; "), nil
}

// show logs the records of scenarios.
func (s *scenarioNode) show(t *testing.T, some []scenario) {
	t.Helper()
	all := s.Histories(s.Runtime.Journal(0))
	for _, one := range some {
		var lines []string
		for field, values := range all[one.podName(1, s)] {
			var texts []string
			for _, v := range values {
				texts = append(texts, v.Is)
			}
			lines = append(lines, fmt.Sprintf("  %s:\n      %s", field, strings.Join(texts, "\n      ")))
		}
		slices.Sort(lines)
		t.Logf("%s\n%s", one.name, strings.Join(lines, "\n"))
	}
}
