package csitest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
)

// volumes is what the driver has of volumes: by id, where they are staged and published.
type volumes struct {
	staged    map[string]string
	published map[string]map[string]bool
	wrong     []string // calls that no caller may make
}

func newVolumes() volumes {
	return volumes{map[string]string{}, map[string]map[string]bool{}, nil}
}

// Staged returns the ids of the volumes that are staged, ascending.
func (d *Driver) Staged() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.volumes.staged))
}

// Published returns where volumes are published, ascending.
func (d *Driver) Published() (out []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, at := range d.volumes.published {
		out = slices.AppendSeq(out, maps.Keys(at))
	}
	slices.Sort(out)
	return out
}

// Wrong returns the calls that no caller may make.
func (d *Driver) Wrong() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.volumes.wrong)
}

// Lose forgets and unmounts everything, as a reboot does.
func (d *Driver) Lose() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.volumes = newVolumes()
}

func (d *Driver) stages() bool {
	return slices.Contains(d.cfg.Can, csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
}

func (d *Driver) wrongly(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	d.volumes.wrong = append(d.volumes.wrong, text)
	return refuse("%s", text)
}

func (d *Driver) stage(req *csipb.NodeStageVolumeRequest) error {
	id, path := req.GetVolumeId(), req.GetStagingTargetPath()
	if was := d.volumes.staged[id]; was != "" {
		if was != path {
			return d.wrongly("%s is staged at %s and at %s", id, was, path)
		}
		return nil
	}
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return d.wrongly("%s is staged where there is no directory: %s", id, path)
	}
	if d.cfg.Mounter != nil && req.GetVolumeCapability().GetBlock() == nil {
		if err := d.cfg.Mounter.Mount("tmpfs", path, "tmpfs", nil); err != nil {
			return err
		}
	}
	d.volumes.staged[id] = path
	return nil
}

func (d *Driver) unstage(req *csipb.NodeUnstageVolumeRequest) error {
	id, path := req.GetVolumeId(), req.GetStagingTargetPath()
	if at := d.volumes.published[id]; len(at) > 0 {
		return d.wrongly("%s is unstaged while it is published at %v", id,
			slices.Sorted(maps.Keys(at)))
	}
	was := d.volumes.staged[id]
	if was == "" {
		return nil
	}
	if was != path {
		return d.wrongly("%s is unstaged from %s, and is at %s", id, path, was)
	}
	if err := d.unmount(path); err != nil {
		return err
	}
	delete(d.volumes.staged, id)
	return nil
}

func (d *Driver) publish(req *csipb.NodePublishVolumeRequest) error {
	id, path, staged := req.GetVolumeId(), req.GetTargetPath(), req.GetStagingTargetPath()
	inline := req.GetVolumeContext()["csi.storage.k8s.io/ephemeral"] == "true"
	if d.stages() && !inline && (staged == "" || d.volumes.staged[id] != staged) {
		return d.wrongly("%s is published from %q, and is staged at %q", id, staged,
			d.volumes.staged[id])
	}
	at := d.volumes.published[id]
	if at[path] {
		return nil
	}
	if err := d.show(req); err != nil {
		return err
	}
	if at == nil {
		at = map[string]bool{}
		d.volumes.published[id] = at
	}
	at[path] = true
	return nil
}

// show makes the volume visible at its target.
func (d *Driver) show(req *csipb.NodePublishVolumeRequest) error {
	path := req.GetTargetPath()
	if req.GetVolumeCapability().GetBlock() != nil {
		return os.WriteFile(path, []byte("device"), 0o600)
	}
	if err := os.Mkdir(path, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if d.cfg.Mounter == nil {
		return nil
	}
	return d.cfg.Mounter.Mount("tmpfs", path, "tmpfs", nil)
}

func (d *Driver) unpublish(req *csipb.NodeUnpublishVolumeRequest) error {
	id, path := req.GetVolumeId(), req.GetTargetPath()
	if !d.volumes.published[id][path] {
		return nil
	}
	if err := d.unmount(path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	delete(d.volumes.published[id], path)
	return nil
}

func (d *Driver) unmount(path string) error {
	if d.cfg.Mounter == nil {
		return nil
	}
	return d.cfg.Mounter.Unmount(path)
}
