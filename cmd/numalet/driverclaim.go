package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// driverClaim describes a claim for "numalet plugin check --dra".
type driverClaim struct {
	driver, node, namespace, class string
	devices                        int
}

// newDriverClaimCommand returns "numalet driver claim DRIVER".
func newDriverClaimCommand() *cobra.Command {
	var want driverClaim
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "claim DRIVER",
		Short: "Make a claim that is allocated and that no pod uses, to check a driver with",
		Long: `Make a ResourceClaim to which free devices of a driver are allocated, and which no pod
uses, as "numalet plugin check --dra" needs one: the scheduler allocates only for pods.
The devices are those of the driver's ResourceSlices, without taints, that no other claim
has. It prints what --claim takes; delete the claim when the driver is checked. A pod
that is scheduled at the same moment may get the same device: use a node for tests.`,
		Example: `  numalet driver claim gpu.example.com --node node1
  numalet plugin check --dra gpu.example.com --claim $(numalet driver claim gpu.example.com)`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("name the driver whose devices the claim is to have, such as " +
					"gpu.example.com; kubectl get resourceslices shows those there are")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := clusterClient(kubeconfig)
			if err != nil {
				return err
			}
			want.driver = args[0]
			claim, err := want.make(cmd.Context(), client)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s/%s/%s\n", claim.Namespace, claim.Name, claim.UID)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&want.node, "node", "", "node whose devices to take (any)")
	flags.StringVarP(&want.namespace, "namespace", "n", "default", "namespace of the claim")
	flags.StringVar(&want.class, "class", "", "DeviceClass that the claim names (the driver's name)")
	flags.IntVar(&want.devices, "devices", 1, "how many devices of one pool the claim gets")
	flags.StringVar(&kubeconfig, "kubeconfig", "",
		"how to reach the API server; empty: $KUBECONFIG, or ~/.kube/config")
	return cmd
}

func clusterClient(kubeconfig string) (kubernetes.Interface, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%w; name a kubeconfig with --kubeconfig", err)
	}
	return kubernetes.NewForConfig(config)
}

// make creates the claim and allocates the devices. A claim that cannot be allocated is deleted.
func (d driverClaim) make(ctx context.Context, client kubernetes.Interface) (
	*resourcev1.ResourceClaim, error) {
	api := client.ResourceV1()
	listed, err := api.ResourceSlices().List(ctx, metav1.ListOptions{
		FieldSelector: resourcev1.ResourceSliceSelectorDriver + "=" + d.driver,
	})
	if err != nil {
		return nil, fmt.Errorf("list the driver's devices: %w", err)
	}
	claims, err := api.ResourceClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list claims, whose devices are not free: %w", err)
	}
	results, err := d.free(listed.Items, claims.Items)
	if err != nil {
		return nil, err
	}
	claim, err := api.ResourceClaims(d.namespace).Create(ctx, d.claim(), metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create the claim: %w", err)
	}
	claim.Status.Allocation = &resourcev1.AllocationResult{
		Devices: resourcev1.DeviceAllocationResult{Results: results},
	}
	allocated, err := api.ResourceClaims(d.namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	if err != nil {
		gone := api.ResourceClaims(d.namespace).Delete(context.WithoutCancel(ctx), claim.Name,
			metav1.DeleteOptions{})
		return nil, errors.Join(fmt.Errorf("allocate devices to the claim: %w", err), gone)
	}
	return allocated, nil
}

// claimRequest is the name of the claim's only request.
const claimRequest = "checked"

func (d driverClaim) claim() *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "numalet-check-", Namespace: d.namespace},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{
				Name: claimRequest,
				Exactly: &resourcev1.ExactDeviceRequest{
					DeviceClassName: cmp.Or(d.class, d.driver),
					AllocationMode:  resourcev1.DeviceAllocationModeExactCount,
					Count:           int64(d.devices),
				},
			}},
		}},
	}
}

// poolDevice names a device of the driver.
type poolDevice struct{ pool, device string }

// free returns devices of one pool that no claim has. Devices that share counters with others are
// taken only from pools of which no device is allocated, since they may overlap.
func (d driverClaim) free(all []resourcev1.ResourceSlice, claims []resourcev1.ResourceClaim) (
	[]resourcev1.DeviceRequestAllocationResult, error) {
	if d.devices < 1 {
		return nil, fmt.Errorf("--devices %d: a claim has one device at least", d.devices)
	}
	held, heldPools := d.held(claims)
	pools, found := map[string][]resourcev1.DeviceRequestAllocationResult{}, 0
	var names []string
	for _, s := range d.newest(all) {
		pool := s.Spec.Pool.Name
		for _, device := range s.Spec.Devices {
			found++
			shared := len(device.ConsumesCounters) > 0
			if held[poolDevice{pool, device.Name}] || len(device.Taints) > 0 ||
				shared && (heldPools[pool] || len(pools[pool]) > 0) {
				continue
			}
			if len(pools[pool]) == 0 {
				names = append(names, pool)
			}
			pools[pool] = append(pools[pool], resourcev1.DeviceRequestAllocationResult{
				Request: claimRequest, Driver: d.driver, Pool: pool, Device: device.Name,
			})
		}
	}
	slices.Sort(names)
	for _, pool := range names {
		if len(pools[pool]) >= d.devices {
			return pools[pool][:d.devices], nil
		}
	}
	where := ""
	if d.node != "" {
		where = " on node " + d.node
	}
	if found == 0 {
		return nil, fmt.Errorf("no ResourceSlice has a device of driver %s%s: does the driver run, and "+
			"does kubectl get resourceslices show it?", d.driver, where)
	}
	return nil, fmt.Errorf("of the %d devices of driver %s%s there are not %d free in one pool: delete "+
		"pods or claims that have them", found, d.driver, where, d.devices)
}

// held returns the devices of the driver that claims have, and their pools.
func (d driverClaim) held(claims []resourcev1.ResourceClaim) (map[poolDevice]bool, map[string]bool) {
	devices, pools := map[poolDevice]bool{}, map[string]bool{}
	for _, c := range claims {
		if c.Status.Allocation == nil {
			continue
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			if r.Driver == d.driver {
				devices[poolDevice{r.Pool, r.Device}], pools[r.Pool] = true, true
			}
		}
	}
	return devices, pools
}

// newest returns the driver's slices on the node that are of their pools' newest generation.
func (d driverClaim) newest(all []resourcev1.ResourceSlice) (out []resourcev1.ResourceSlice) {
	generations := map[string]int64{}
	for _, s := range all {
		generations[s.Spec.Pool.Name] = max(generations[s.Spec.Pool.Name], s.Spec.Pool.Generation)
	}
	for _, s := range all {
		on := d.node == "" || s.Spec.NodeName != nil && *s.Spec.NodeName == d.node
		if s.Spec.Driver == d.driver && on && s.Spec.Pool.Generation == generations[s.Spec.Pool.Name] {
			out = append(out, s)
		}
	}
	return out
}
