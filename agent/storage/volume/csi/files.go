package csi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/internal/files"
)

// Names of the kubelet's files.
const (
	dataFile   = "vol_data.json"
	globalName = "globalmount"
	// MountName is the name of the mount in a volume's directory of a pod.
	MountName  = "mount"
	podsName   = "pods"
	devices    = "volumeDevices"
	stagingDir = "staging"
	publishDir = "publish"
	escaped    = "kubernetes.io~csi"

	dirMode, dataMode = 0o750, 0o644
	// maxData is the largest size in bytes of a record.
	maxData = 64 << 10
)

// record is the kubelet's record of a volume. It is written before the driver is called: what has a
// record has to be undone.
type record struct {
	Driver     string `json:"driverName"`
	Handle     string `json:"volumeHandle"`
	Name       string `json:"specVolID,omitempty"`
	Node       string `json:"nodeName,omitempty"`
	Attachment string `json:"attachmentID,omitempty"`
	Life       string `json:"volumeLifecycleMode,omitempty"`
	Label      string `json:"seLinuxMountContext,omitempty"`
}

func (r record) key() Key { return Key{r.Driver, r.Handle} }

// write writes the record into a directory as the kubelet does, with its keys in order.
func (r record) write(dir string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	var sorted map[string]string
	if err := json.Unmarshal(text, &sorted); err != nil {
		return err
	}
	var out bytes.Buffer
	if err := json.NewEncoder(&out).Encode(sorted); err != nil {
		return err
	}
	path := filepath.Join(dir, dataFile)
	if err := files.MakeWay(path); err != nil {
		return fmt.Errorf("failed to save volume data file %s: %w", path, err)
	}
	was, err := files.Read(path, maxData)
	if err != nil || !bytes.Equal(was, out.Bytes()) {
		err = files.ReplaceDurably(path, out.Bytes())
	}
	if err == nil {
		err = os.Chmod(path, dataMode)
	}
	if err != nil {
		return fmt.Errorf("failed to save volume data file %s: %w", path, err)
	}
	return nil
}

// readRecord returns the record in a directory. The error is fs.ErrNotExist if there is none.
func readRecord(dir string) (r record, err error) {
	text, err := files.Read(filepath.Join(dir, dataFile), maxData)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("failed to parse volume data file %s: %w", filepath.Join(dir, dataFile),
			err)
	}
	if err := r.check(); err != nil {
		return r, fmt.Errorf("volume data file %s: %w", filepath.Join(dir, dataFile), err)
	}
	return r, nil
}

// check refuses a record that names no volume, or whose fields contradict each other.
func (r record) check() error {
	switch {
	case r.Driver == "" || r.Handle == "":
		return errors.New("it names no volume")
	case r.Attachment != "" && r.Node != "" && r.Attachment != r.key().AttachmentName(r.Node):
		return fmt.Errorf("its attachment %s is not that of volume %s", r.Attachment, r.Handle)
	default:
		return checkName(r.Driver)
	}
}

// paths knows where the files are. It is the agent's root directory.
type paths string

func (p paths) plugin() string { return filepath.Join(string(p), "plugins", pluginName) }

// global is where a volume with a file system is staged.
func (p paths) global(k Key) string {
	return filepath.Join(p.plugin(), k.Driver, hash(k.Handle), globalName)
}

// block is a directory of block volumes: staging, publish or that of one volume.
func (p paths) block(elements ...string) string {
	return filepath.Join(append([]string{p.plugin(), devices}, elements...)...)
}

// staging is where a volume is staged.
func (p paths) staging(v Volume) string {
	if v.Block {
		return p.block(stagingDir, v.Path)
	}
	return p.global(v.Key)
}

// pod is the directory of a volume with a file system in its pod's directory.
func (p paths) pod(uid types.UID, name string) string {
	return filepath.Join(string(p), podsName, string(uid), "volumes", escaped, name)
}

// target is where a use is published.
func (p paths) target(u use) string {
	if u.block {
		return p.block(publishDir, u.name, string(u.pod))
	}
	return filepath.Join(p.pod(u.pod, u.name), MountName)
}

// pathOf returns a volume's name as an element of paths.
func pathOf(name string) string { return strings.ReplaceAll(name, "/", "~") }

// removeEmpty removes those of the directories or files that exist. It stops at a directory that is not
// empty, or that something is mounted on.
func removeEmpty(all ...string) error {
	for _, path := range all {
		err := os.Remove(path)
		switch {
		case err == nil, errors.Is(err, fs.ErrNotExist):
		case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EBUSY):
			return nil
		default:
			return err
		}
	}
	return nil
}

// removeMount removes the directory of a mount that is unmounted, with the record beside it.
func removeMount(path string) error {
	dir := filepath.Dir(path)
	data := filepath.Join(dir, dataFile)
	return removeEmpty(path, files.Temporary(data), data, dir)
}
