package dra

import (
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/numalet/numalet/deviceplugin/dradriver"
	"github.com/numalet/numalet/deviceplugin/eni"
)

// moment has the interfaces that are offered at one time. It is immutable.
type moment struct {
	*driver
	offers []eni.Offer
	at     time.Time // time of the look; zero: there was none yet
}

// refuse refuses opaque parameters: the driver knows none.
func refuse([]byte) error {
	return errors.New("this driver knows no parameters: leave them out")
}

// list returns what is published and reported.
func (m moment) list() dradriver.List {
	out := dradriver.List{At: m.at}
	if m.at.IsZero() {
		out.Unknown = "the interfaces have not been looked at yet"
	}
	for _, o := range m.offers {
		d := dradriver.Device{Trouble: o.Trouble,
			Device: resourcev1.Device{Name: nameOf(o.Interface), Attributes: attributes(o)}}
		if o.Trouble != "" {
			d.Taints = []resourcev1.DeviceTaint{{Key: m.name + "/unhealthy",
				Effect: resourcev1.DeviceTaintEffectNoSchedule}}
		}
		out.Devices = append(out.Devices, d)
	}
	return out
}

// nameOf returns the name of an interface in ResourceSlices, a DNS label that is made of its id:
// pci-0000-81-00-1, net-eth1.
func nameOf(i eni.Interface) string {
	prefix := "net-"
	if i.Hardware.PCI != "" {
		prefix = "pci-"
	}
	label := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, i.ID)
	if i.Hardware.PCI == "" && label != i.ID || strings.HasSuffix(label, "-") { // others may look alike
		label = fmt.Sprintf("%s-%08x", strings.Trim(label, "-"), crc32.ChecksumIEEE([]byte(i.ID)))
	}
	return prefix + label
}

// attributes list what claims can select by. Their domain is the driver's, unless they are
// Kubernetes' standard ones.
func attributes(o eni.Offer) dradriver.Attributes {
	out := dradriver.Attributes{}
	link, hardware := o.Link, o.Hardware
	out.Text("resource", o.Resource)
	out.Text("ifName", link.State.Name)
	out.Text("mac", link.State.MAC)
	out.Number("mtu", link.State.MTU)
	if out.Text("kind", link.Kind); link.Kind == "" {
		out.Text("kind", "device")
	}
	if len(hardware.Drivers) > 0 {
		out.Text("driver", hardware.Drivers[0])
	}
	out.Text("vendor", hardware.Vendor)
	out.Text("deviceID", hardware.Device)
	if hardware.Speed > 0 {
		out.Number("speed", hardware.Speed)
	}
	out.Flag("rdma", len(hardware.RDMA) > 0)
	out.Text("virtualOf", hardware.Physical)
	out.Place(hardware.PCI, hardware.Root, hardware.Node)
	return out
}

// find returns the offer of a device.
func (m moment) find(device string) (eni.Offer, bool) {
	at := slices.IndexFunc(m.offers, func(o eni.Offer) bool { return nameOf(o.Interface) == device })
	if at < 0 {
		return eni.Offer{}, false
	}
	return m.offers[at], true
}

// Stands implements dradriver.Devices. An interface that the plugin does not know may be where its
// claim's containers are.
func (m moment) Stands(r dradriver.Record, h dradriver.Held) bool {
	if h.Admin {
		return true
	}
	claim, known := m.plugin.Holder(h.ID)
	return !known || claim == string(r.UID)
}

// Obtain implements dradriver.Devices. A claim for administration gets a device without owning it.
func (m moment) Obtain(_ dradriver.Records, r dradriver.Record, h *dradriver.Held) error {
	offer, there := m.find(h.Device)
	switch {
	case !there:
		return errors.New("it is not there any more")
	case h.Admin:
		return nil
	}
	h.ID = offer.ID
	return m.plugin.Hand(offer.ID, string(r.UID))
}

// Edits implements dradriver.Devices.
func (m moment) Edits(r dradriver.Record) ([]specs.ContainerEdits, error) {
	var uses []eni.Use
	for _, h := range r.Devices {
		u := eni.Use{ID: h.ID, Shared: h.Admin}
		if h.Admin {
			offer, there := m.find(h.Device)
			if !there {
				return nil, fmt.Errorf("device %s is not there any more", h.Device)
			}
			u.ID = offer.ID
		}
		uses = append(uses, u)
	}
	return m.plugin.Edits(uses)
}

// Drop implements dradriver.Devices.
func (m moment) Drop(all []dradriver.Held) error {
	var errs []error
	for _, h := range all {
		if h.ID != "" {
			errs = append(errs, m.plugin.Back(h.ID))
		}
	}
	return errors.Join(errs...)
}
