package fit

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/deviceplugin/dra/places"
	"github.com/numalet/numalet/topology"
)

// Claims are the resource claims that a question has, and say where their devices are.
type Claims struct {
	byName    map[types.NamespacedName]*resourcev1.ResourceClaim
	templates map[types.NamespacedName]*resourcev1.ResourceClaimTemplate
	places    map[device]places.Device
	table     places.Table
	// machine is that of the places. place knows where devices are of which the question has no slice.
	machine *topology.Machine
	place   func(driver, pool, device string) claim.Place
}

type device struct{ driver, pool, name string }

// NewClaims returns those of a manifest. place is where devices are of which it has no slice; nil: that
// is not known.
func NewClaims(m manifest.Manifest, table places.Table, machine *topology.Machine,
	place func(driver, pool, device string) claim.Place) *Claims {
	c := &Claims{byName: map[types.NamespacedName]*resourcev1.ResourceClaim{},
		templates: map[types.NamespacedName]*resourcev1.ResourceClaimTemplate{}, places: map[device]places.Device{},
		table: table, machine: machine, place: place}
	for _, one := range m.Claims {
		c.byName[keyOf(one.ObjectMeta)] = one
	}
	for _, one := range m.Templates {
		c.templates[keyOf(one.ObjectMeta)] = one
	}
	for _, s := range m.Slices {
		for _, d := range s.Spec.Devices {
			c.places[device{s.Spec.Driver, s.Spec.Pool.Name, d.Name}] = places.Device{Driver: s.Spec.Driver,
				Pool: s.Spec.Pool.Name, Name: d.Name, Attributes: d.Attributes, Capacity: d.Capacity}
		}
	}
	return c
}

func keyOf(of metav1.ObjectMeta) types.NamespacedName {
	return types.NamespacedName{Namespace: cmp.Or(of.Namespace, v1.NamespaceDefault), Name: of.Name}
}

// asks says what the template of a claim asks for, as far as that is known.
func (c *Claims) asks(key types.NamespacedName) string {
	template := c.templates[key]
	if template == nil {
		return ""
	}
	var out []string
	for _, r := range template.Spec.Spec.Devices.Requests {
		switch one := r.Exactly; {
		case one == nil:
			out = append(out, fmt.Sprintf("the first possible of %d choices", len(r.FirstAvailable)))
		case one.AllocationMode == resourcev1.DeviceAllocationModeAll:
			out = append(out, "all of class "+one.DeviceClassName)
		default:
			out = append(out, fmt.Sprintf("%d of class %s", max(one.Count, 1), one.DeviceClassName))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return ", which asks for " + strings.Join(out, " and ") + " and whose devices the scheduler chooses"
}

// of returns the claims of a pod that are allocated. notes say what is not known of the others and of
// where devices are, and what has to be done for it.
func (c *Claims) of(pod *v1.Pod) (out allocation.PodClaims, notes []string) {
	if c == nil {
		c = &Claims{}
	}
	open := func(name, format string, args ...any) {
		notes = append(notes, "claim "+name+" counts for nothing here: "+fmt.Sprintf(format, args...))
	}
	refs := make([]claim.Ref, 0, len(pod.Spec.ResourceClaims))
	for i := range pod.Spec.ResourceClaims {
		entry := &pod.Spec.ResourceClaims[i]
		ref, err := claim.RefOf(pod, entry)
		switch {
		case errors.Is(err, claim.ErrNotCreated):
			template := *entry.ResourceClaimTemplateName
			open(entry.Name, "no ResourceClaim was made yet of its template %s%s; ask about the pod as the API "+
				"server has it, whose status names the claim", template,
				c.asks(types.NamespacedName{Namespace: pod.Namespace, Name: template}))
		case err != nil:
			open(entry.Name, "%v", err)
		case ref.Name != "":
			refs = append(refs, ref)
		}
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		refs = append(refs, claim.Ref{Name: s.ResourceClaimName})
	}
	for _, ref := range refs {
		name := ref.Pod
		if name == "" {
			name = "for extended resources"
		}
		one := c.byName[types.NamespacedName{Namespace: pod.Namespace, Name: ref.Name}]
		switch {
		case one == nil:
			open(name, "ResourceClaim %s/%s is not among the files; add what kubectl get resourceclaim "+
				"%s -o yaml prints", pod.Namespace, ref.Name, ref.Name)
		case one.Status.Allocation == nil:
			open(name, "ResourceClaim %s/%s is not allocated; the scheduler has to choose its devices first",
				pod.Namespace, ref.Name)
		default:
			use, lost := c.use(ref, one)
			out.Uses = append(out.Uses, use)
			notes = append(notes, lost...)
		}
	}
	return out, notes
}

// use returns an allocated claim with the places of its devices, and of which devices these are not
// known.
func (c *Claims) use(ref claim.Ref, of *resourcev1.ResourceClaim) (u claim.Use, notes []string) {
	u = claim.UseOf(ref, of)
	for i := range u.Devices {
		d := &u.Devices[i]
		if in, listed := c.places[device{d.Driver, d.Pool, d.Name}]; listed && c.machine != nil {
			var wrong []string
			d.Place, wrong = c.table.Find(c.machine, in)
			notes = append(notes, wrong...)
		} else if c.place != nil {
			d.Place = c.place(d.Driver, d.Pool, d.Name)
		}
		if at := d.Place; at.Nodes.IsEmpty() && at.PCI == "" && at.Root == "" && at.UUID == "" {
			notes = append(notes, fmt.Sprintf("where device %s/%s/%s of ResourceClaim %s is, is not known; add its "+
				"ResourceSlice to the files", d.Driver, d.Pool, d.Name, of.Name))
		}
	}
	return u, notes
}
