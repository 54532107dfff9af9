package csinodes

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/internal/ownlabel"
)

const (
	// annotationIDs has the node ids of the drivers, as JSON.
	annotationIDs = "csi.volume.kubernetes.io/nodeid"
	// annotationMigrated names the in-tree plugins whose volumes CSI drivers have on this node.
	annotationMigrated = "storage.alpha.kubernetes.io/migrated-plugins"
	// longestID is the longest id of a node that CSINode takes.
	longestID = 192
)

// migrated are the in-tree plugins whose volumes CSI drivers make, as in Kubernetes 1.37.
var migrated = []string{
	"kubernetes.io/aws-ebs", "kubernetes.io/azure-disk", "kubernetes.io/azure-file", "kubernetes.io/cinder",
	"kubernetes.io/gce-pd", "kubernetes.io/portworx-volume", "kubernetes.io/vsphere-volume",
}

// changes are the metadata of the node that follow from the drivers.
type changes struct {
	labels map[string]string // new ones
	// ids is the annotation with the drivers' ids; "": it is removed.
	ids     string
	another bool // the annotation is another than the node has
}

func (c changes) none() bool { return len(c.labels) == 0 && !c.another }

// plan returns what is to be changed of the node, which drivers its CSINode is to have, by name, and why
// others are refused. kept are the entries of drivers that are expected to register.
func plan(node *v1.Node, drivers []csi.Node, kept []storagev1.CSINodeDriver) (
	c changes, taken []storagev1.CSINodeDriver, refused map[string]error) {
	refused = map[string]error{}
	c.labels = map[string]string{}
	taken = slices.Clone(kept)
	for _, d := range slices.SortedFunc(slices.Values(drivers), byName) {
		if err := c.take(node, d); err != nil {
			refused[d.Driver] = err
			continue
		}
		taken = append(taken, entry(d))
	}
	slices.SortFunc(taken, func(a, b storagev1.CSINodeDriver) int { return cmp.Compare(a.Name, b.Name) })
	ids := map[string]string{}
	for _, d := range taken {
		ids[d.Name] = d.NodeID
	}
	if len(ids) > 0 {
		raw, _ := json.Marshal(ids) // of texts alone
		c.ids = string(raw)
	}
	c.another = !sameIDs(node.Annotations[annotationIDs], ids)
	return c, taken, refused
}

func byName(a, b csi.Node) int { return cmp.Compare(a.Driver, b.Driver) }

// take adds the labels of the driver's topology, all of them or none.
func (c *changes) take(node *v1.Node, d csi.Node) error {
	if d.NodeID == "" || len(d.NodeID) > longestID {
		return fmt.Errorf("the node id of CSI driver %s has %d characters; it may have 1 to %d", d.Driver,
			len(d.NodeID), longestID)
	}
	added := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(d.Topology)) {
		value := d.Topology[key]
		if err := label(key, value); err != nil {
			return fmt.Errorf("CSI driver %s reported the topology %q:%q: %w", d.Driver, key, value, err)
		}
		has, is := node.Labels[key]
		if !is {
			has, is = c.labels[key]
		}
		switch {
		case !is:
			added[key] = value
		case has != value:
			return fmt.Errorf("detected topology value collision: driver reported %q:%q but existing label is %q:%q",
				key, value, key, has)
		}
	}
	maps.Copy(c.labels, added)
	return nil
}

// label returns why the API server would take no node with such a label, nor a CSINode with such a key.
func label(key, value string) error {
	if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
		return fmt.Errorf("the key is none of a label: %s", strings.Join(wrong, "; "))
	}
	if wrong := validation.IsValidLabelValue(value); len(wrong) > 0 {
		return fmt.Errorf("the value is none of a label: %s", strings.Join(wrong, "; "))
	}
	if !ownlabel.Is(key) {
		return errors.New("a node may not give itself such a label")
	}
	return nil
}

func sameIDs(text string, ids map[string]string) bool {
	if text == "" {
		return len(ids) == 0
	}
	var has map[string]string
	return json.Unmarshal([]byte(text), &has) == nil && len(ids) > 0 && maps.Equal(has, ids)
}

// entry returns what the CSINode has of a driver.
func entry(d csi.Node) storagev1.CSINodeDriver {
	return storagev1.CSINodeDriver{Name: d.Driver, NodeID: d.NodeID,
		TopologyKeys: slices.Sorted(maps.Keys(d.Topology)), Allocatable: allocatable(d)}
}

// object returns the CSINode that the node is to have, with these drivers and no others, made of what it
// has; nil: none yet.
func object(node *v1.Node, has *storagev1.CSINode, drivers []storagev1.CSINodeDriver) *storagev1.CSINode {
	out := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
	if has != nil {
		out = has.DeepCopy()
	}
	out.OwnerReferences = slices.DeleteFunc(out.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == "Node"
	})
	out.OwnerReferences = append(out.OwnerReferences, metav1.OwnerReference{
		APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
	})
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[annotationMigrated] = withOurs(out.Annotations[annotationMigrated])
	out.Spec.Drivers = append([]storagev1.CSINodeDriver{}, drivers...)
	return out
}

// withOurs returns the migrated plugins, with those that others have added.
func withOurs(text string) string {
	all := slices.Clone(migrated)
	for _, name := range strings.Split(text, ",") {
		if name != "" && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

// allocatable returns how many volumes the node takes; nil: without a limit.
func allocatable(d csi.Node) *storagev1.VolumeNodeResources {
	if d.MaxVolumes <= 0 {
		return nil
	}
	count := int32(min(d.MaxVolumes, math.MaxInt32))
	return &storagev1.VolumeNodeResources{Count: &count}
}
