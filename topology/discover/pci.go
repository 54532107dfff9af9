package discover

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/jaypipes/pcidb"

	"github.com/numalet/numalet/topology"
)

const pciDir = "sys/bus/pci/devices"

// pci reads the PCI functions; attributes missing from a capture stay empty.
func (t tree) pci(nodes []topology.Node) ([]topology.PCIDevice, error) {
	entries, err := fs.ReadDir(t.fsys, pciDir)
	if absent(err) {
		return nil, nil // no PCI bus, or not captured
	}
	if err != nil {
		return nil, fmt.Errorf("list PCI devices: %w", err)
	}
	known := map[topology.NodeID]bool{}
	for _, n := range nodes {
		known[n.ID] = true
	}
	var devices []topology.PCIDevice
	for _, e := range entries {
		dir := pciDir + "/" + e.Name()
		d := topology.PCIDevice{Address: e.Name(), Node: topology.NoNode}
		if err := t.pciIDsOf(dir, &d); err != nil {
			return nil, err
		}
		d.Path = t.pciPath(dir, d.Address)
		node, err := t.number(dir + "/numa_node")
		if err != nil && !absent(err) {
			return nil, err
		}
		if id := topology.NodeID(node); err == nil && known[id] {
			d.Node = id
		}
		devices = append(devices, d)
	}
	return devices, nil
}

// pciPath returns the way from the root complex, which the link at dir leads along:
// ../../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0 has the path pci0000:3a/0000:3a:00.0. It is
// "" in a capture that has a directory instead, and for a device on no root, as some hypervisors
// have.
func (t tree) pciPath(dir, address string) string {
	target, err := fs.ReadLink(t.fsys, dir)
	if err != nil {
		return ""
	}
	_, way, below := strings.Cut(target, "/pci")
	path, ends := strings.CutSuffix("pci"+way, "/"+address)
	if !below || !ends || !topology.ValidPCIPath(path) {
		return ""
	}
	return path
}

// pciIDsOf reads class, vendor and device of the function in dir.
func (t tree) pciIDsOf(dir string, d *topology.PCIDevice) error {
	for _, id := range []struct {
		attribute string
		digits    int
		field     *string
	}{{"class", 6, &d.Class}, {"vendor", 4, &d.Vendor}, {"device", 4, &d.Device}} {
		path := dir + "/" + id.attribute
		text, err := t.text(path)
		if absent(err) {
			continue
		}
		if err != nil {
			return err
		}
		if *id.field, err = parseHex(text, id.digits); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
	}
	return nil
}

// namePCI sets the names from the PCI database of the tree at root, or else of this host. It only
// reads files: with a given file pcidb never uses the network.
func namePCI(devices []topology.PCIDevice, root string) {
	if len(devices) == 0 {
		return
	}
	path := pciIDs(root)
	if path == "" && filepath.Clean(root) != "/" {
		path = pciIDs("/")
	}
	if path == "" {
		return
	}
	db := readPCIDB(path)
	for i, d := range devices {
		vendor, device := strings.TrimPrefix(d.Vendor, "0x"), strings.TrimPrefix(d.Device, "0x")
		if product := db.Products[vendor+device]; product != nil {
			devices[i].Name = product.Name
		} else if v := db.Vendors[vendor]; v != nil {
			devices[i].Name = v.Name
		}
	}
}

// readPCIDB reads a pci.ids; an unreadable one gives no names.
func readPCIDB(path string) (db *pcidb.DB) {
	defer func() {
		if recover() != nil { // pcidb panics on a line that is too short
			db = &pcidb.DB{}
		}
	}()
	db, err := pcidb.New(pcidb.WithPath(path))
	if err != nil {
		return &pcidb.DB{}
	}
	return db
}

// pciIDs returns the path of the pci.ids below root, "" if there is none. A link out of root does
// not count.
func pciIDs(root string) string {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return ""
	}
	defer dir.Close()
	for _, name := range []string{
		"usr/share/hwdata/pci.ids", "usr/share/misc/pci.ids",
		"usr/share/hwdata/pci.ids.gz", "usr/share/misc/pci.ids.gz",
	} {
		if info, err := dir.Stat(name); err == nil && info.Mode().IsRegular() {
			return filepath.Join(root, name)
		}
	}
	return ""
}
