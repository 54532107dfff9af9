package hollow

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/await"
)

// publishAgain are the pauses between attempts to publish a node's slices.
var publishAgain = await.Pauses{First: time.Second, Last: time.Minute}

// driverOf returns the name of the driver that has the devices of a resource in place of a plugin:
// gpu.example.com has those of example.com/gpu.
func driverOf(resource string) string {
	domain, kind, _ := strings.Cut(resource, "/")
	return kind + "." + domain
}

// checkSlices reports what keeps an inventory from being published in ResourceSlices.
func checkSlices(of devicemanager.Inventory) error {
	for name, r := range of.Resources {
		wrong := validation.IsDNS1123Subdomain(driverOf(name))
		for _, d := range r.Devices {
			wrong = append(wrong, validation.IsDNS1123Label(d.ID)...)
		}
		if len(wrong) > 0 {
			return fmt.Errorf("devices of %s cannot be had by claim: %s; give --device another name",
				name, wrong[0])
		}
	}
	return nil
}

// slicesOf returns the ResourceSlices of the devices of a node: a driver and a pool for each
// resource.
func slicesOf(node *v1.Node, of devicemanager.Inventory) (out []*resourcev1.ResourceSlice) {
	for _, resource := range slices.Sorted(maps.Keys(of.Resources)) {
		driver := driverOf(resource)
		chunks := slices.Collect(slices.Chunk(of.Resources[resource].Devices,
			resourcev1.ResourceSliceMaxDevices))
		for n, some := range chunks {
			s := &resourcev1.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s-%d", node.Name, driver, n),
					OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node",
						Name: node.Name, UID: node.UID, Controller: new(true)}}},
				Spec: resourcev1.ResourceSliceSpec{Driver: driver, NodeName: &node.Name,
					Pool: resourcev1.ResourcePool{Name: node.Name, Generation: 1,
						ResourceSliceCount: int64(len(chunks))}},
			}
			for _, d := range some {
				s.Spec.Devices = append(s.Spec.Devices, published(d))
			}
			out = append(out, s)
		}
	}
	return out
}

// published returns a device as its slice has it; one of several NUMA nodes has no node there.
func published(d *devicemanager.Device) resourcev1.Device {
	out := resourcev1.Device{Name: d.ID}
	if nodes := d.Nodes.IDs(); len(nodes) == 1 {
		out.Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			deviceattribute.StandardDeviceAttributeNUMANode: {IntValue: new(int64(nodes[0]))},
		}
	}
	return out
}

// publish writes the node's ResourceSlices if it is to have any, in place of those of an earlier
// run, when the API server has its object.
func (s *Nodes) publish(ctx context.Context, n *node) {
	if !s.cfg.Claims {
		return
	}
	for pause := publishAgain.First; ; pause = publishAgain.Next(pause) {
		object := n.Object()
		if object != nil {
			err := s.replaceSlices(ctx, n, slicesOf(object, n.shape.claimed))
			if err == nil {
				return
			}
			klog.FromContext(ctx).Info("ResourceSlices are not published yet; it is tried again",
				"node", n.name, "err", err)
		} else {
			pause = publishAgain.First
		}
		if !await.For(ctx, pause) {
			return
		}
	}
}

func (s *Nodes) replaceSlices(ctx context.Context, n *node, want []*resourcev1.ResourceSlice) error {
	api := s.kube.Main().ResourceV1().ResourceSlices()
	err := api.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{
		FieldSelector: resourcev1.ResourceSliceSelectorNodeName + "=" + n.name})
	if err != nil {
		return err
	}
	for _, slice := range want {
		if _, err := api.Create(ctx, slice, metav1.CreateOptions{}); err != nil &&
			!apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}
