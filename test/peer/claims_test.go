package peer

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/test/cluster/drivers"
)

// claimDriver is the driver of the pods' resource claims, and the name of their template.
const claimDriver = "peer.example.com"

// claims starts pods with resource claims of Kubernetes' test driver, one after the other and as many
// as a node has at once. The scheduler takes its time to allocate claims, so what counts is the time
// from when a pod is bound; of single pods without the calls to the runtime and to the driver.
func (n *node) claims(daemon *containerd.Daemon) {
	n.t.Helper()
	count := n.settings.claims
	driver := n.Driver(drivers.Config{Name: claimDriver, Devices: count, CDI: daemon.CDIDir()})
	n.must(driver.Start(n.t.Context()))
	n.classify()
	n.claimsOneAtATime(driver)

	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("claims%d", i)
	}
	cpu := n.CPU()
	n.phase("claims", "running", names, n.ready, func(name string) { n.create(n.claiming(name)) })
	var took []float64
	for _, name := range names {
		took = append(took, n.when("ready", n.ready, name).Sub(n.when("bound", n.bound, name)).Seconds())
	}
	n.column.add("claims_bound_to_running_p50_s", median(took))
	n.column.add("claims_bound_to_running_max_s", slices.Max(took))
	time.Sleep(5 * time.Second) // for what comes behind
	n.column.add("claims_cpu_s", (n.CPU() - cpu).Seconds())
	n.phase("claims", "gone", names, n.gone, func(name string) { n.remove(name) })
	if held, unknown := drivers.Held(driver.Calls()); len(held)+len(unknown) > 0 {
		n.t.Errorf("%d claims are prepared after their pods are gone, and perhaps %d", len(held),
			len(unknown))
	}
	n.must(driver.Stop())
}

// classify makes the class and the template of the pods' claims.
func (n *node) classify() {
	n.t.Helper()
	meta := metav1.ObjectMeta{Name: claimDriver}
	api, ctx := n.cluster.Client.ResourceV1(), context.Background()
	class, err := api.DeviceClasses().Create(ctx, &resourcev1.DeviceClass{ObjectMeta: meta,
		Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{{
			CEL: &resourcev1.CELDeviceSelector{
				Expression: fmt.Sprintf("device.driver == %q", claimDriver)}}}}},
		metav1.CreateOptions{})
	n.must(err)
	n.t.Cleanup(func() {
		n.must(api.DeviceClasses().Delete(ctx, class.Name, metav1.DeleteOptions{}))
	})
	_, err = api.ResourceClaimTemplates(n.cluster.Namespace).Create(ctx,
		&resourcev1.ResourceClaimTemplate{ObjectMeta: meta, Spec: resourcev1.ResourceClaimTemplateSpec{
			Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
				Requests: []resourcev1.DeviceRequest{{Name: "one",
					Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: claimDriver}}}}}}},
		metav1.CreateOptions{})
	n.must(err)
}

// claiming returns a pod with a claim of its own. The scheduler binds it to the node.
func (n *node) claiming(name string) *v1.Pod {
	pod := n.pod(name)
	pod.Spec.NodeName, pod.Spec.NodeSelector = "", map[string]string{v1.LabelHostname: n.Name}
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{
		{Name: "device", ResourceClaimTemplateName: ptr.To(claimDriver)}}
	pod.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "device"}}
	return pod
}

func (n *node) claimsOneAtATime(driver *drivers.Driver) {
	n.t.Helper()
	var own, stop []float64
	for i := range n.settings.singles {
		name := fmt.Sprintf("claim%d", i)
		idle, called := n.inRuntime("run_podsandbox", "create_container", "start_container"),
			inDriver(driver)
		n.create(n.claiming(name))
		took := n.when("ready", n.ready, name).Sub(n.when("bound", n.bound, name))
		time.Sleep(200 * time.Millisecond) // for what the agent writes behind
		own = append(own, ms(took-idle()-(inDriver(driver)-called)))
		began := n.remove(name)
		stop = append(stop, ms(n.when("gone", n.gone, name).Sub(began)))
	}
	n.column.add("claim_bound_to_running_own_p50_ms", median(own))
	n.column.add("claim_stop_p50_ms", median(stop))
}

// inDriver returns how long all calls to prepare claims took so far.
func inDriver(driver *drivers.Driver) (sum time.Duration) {
	for _, c := range driver.Calls() {
		if c.Method == drivers.Prepare && !c.Ended.IsZero() {
			sum += c.Ended.Sub(c.Began)
		}
	}
	return sum
}
