package csi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/numalet/numalet/agent/storage/volume/operation"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/files"
)

// job is one SetUp.
type job struct {
	*Mounts
	Request
	object     object
	attachment map[string]string
}

// staging and publishing name the operations in the kubelet's messages.
func (j job) staging() string    { return pick(j.Block, "MountDevice", "SetUpDevice") }
func (j job) publishing() string { return pick(j.Block, "SetUp", "MapPodDevice") }

// tried calls the driver for a path, unless a call for it failed a short time ago: one that is not
// registered is called again when it is.
func (m *Mounts) tried(ctx context.Context, k Key, path string, do rpc) error {
	var last failure
	m.book.Change(k, func(e *entry) { last = e.failed[path] })
	if errors.Is(last.err, ErrNotRegistered) && m.cfg.Drivers.Registered(k.Driver) {
		last = failure{}
	}
	if time.Now().Before(last.again) {
		return &cri.PausedError{Err: last.err, Until: last.again, Repeated: true}
	}
	err := m.cfg.Drivers.call(ctx, k.Driver, do)
	switch {
	case err == nil:
		m.book.Change(k, func(e *entry) { delete(e.failed, path) })
		return nil
	case errors.Is(context.Cause(ctx), errGone):
		return err
	}
	now := last.next(err, m.cfg.Pauses)
	m.book.Change(k, func(e *entry) { e.failed[path] = now })
	return &cri.PausedError{Err: err, Until: now.again}
}

// next is the failure after another one.
func (f failure) next(err error, pauses await.Pauses) failure {
	now := time.Now()
	if f.times == 0 {
		f.since = now
	}
	return failure{f.times + 1, f.since, now.Add(pauses.After(f.times)), err}
}

// call is tried for the volume, with what the driver can do.
func (j job) call(ctx context.Context, path string,
	do func(ctx context.Context, client csipb.NodeClient, can Capabilities) error) error {
	return j.Mounts.tried(j.migrated(ctx), j.Key, path, asking(do))
}

// stage has the driver stage the volume, if it stages volumes.
func (j job) stage(ctx context.Context) error {
	path := j.paths.staging(j.Volume)
	var before place
	had := false
	j.book.Change(j.Key, func(e *entry) { before, had = e.places[path] })
	if had && before.label != j.Label {
		if err := j.relabel(ctx, before); err != nil {
			return err
		}
		before, had = place{}, false
	}
	if before.done {
		return nil
	}
	began := false
	err := j.call(ctx, path, func(ctx context.Context, c csipb.NodeClient, can Capabilities) error {
		if !can[csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME] {
			return nil
		}
		secrets, err := j.cfg.secret(ctx, "NodeStageSecretRef", j.Secrets.Stage)
		if err != nil {
			return err
		}
		began = true
		if err := j.beginStage(path, !had || before.only); err != nil {
			return err
		}
		_, err = c.NodeStageVolume(ctx, &csipb.NodeStageVolumeRequest{
			VolumeId: j.Handle, PublishContext: j.attachment, StagingTargetPath: path,
			VolumeCapability: j.capability(can), Secrets: secrets, VolumeContext: j.Attributes,
		})
		return err
	})
	switch {
	case !began:
		return j.absent(err)
	case err == nil:
		j.staged(path, place{done: true})
	case isFinal(err) && (!had || before.only):
		return errors.Join(err, unstager{j.Mounts}.endStage(j.Key, place{path: path, name: j.blockName()}))
	}
	return err
}

// relabel takes back the staging of a volume that is mounted with another SELinux label, unless a pod
// still has it so.
func (j job) relabel(ctx context.Context, before place) error {
	unstaging := unstager{j.Mounts}
	others := unstaging.mayUnstage(before) != nil
	j.book.Change(j.Key, func(e *entry) {
		for u, now := range e.Users {
			others = others || u != j.use() && now.known
		}
	})
	if others {
		return fmt.Errorf("waiting for unmount of volume %q, because it is already mounted to a different "+
			"pod with a different SELinux label", j.Key.Name())
	}
	return unstaging.unstageAt(ctx, j.Key, before)
}

// absent words the absence of the driver as the kubelet does.
func (j job) absent(err error) error {
	if !errors.Is(err, ErrNotRegistered) {
		return err
	}
	if j.Ephemeral {
		return fmt.Errorf("%s: mounter.SetUpAt failed to get CSI client: %w", pluginName, err)
	}
	return &operation.Error{Part: j.staging(), Err: fmt.Errorf("%s: %s failed to %s: %w", pluginName,
		pick(j.Block, "attacher.MountDevice", "blockMapper.SetUpDevice"),
		pick(j.Block, "create newCsiDriverClient", "get CSI client"), err)}
}

// pick returns a word for volumes with a file system, or for block volumes.
func pick(isBlock bool, files, block string) string {
	if isBlock {
		return block
	}
	return files
}

func (j job) blockName() string {
	if j.Block {
		return j.Path
	}
	return ""
}

// staged notes how far staging is.
func (j job) staged(path string, p place) {
	p.path, p.name, p.label = path, j.blockName(), j.Label
	j.book.Change(j.Key, func(e *entry) { e.places[path] = p })
}

// settle notes how far the pod's use is. Whether the pod gives it up is not changed.
func (j job) settle(to state) {
	j.book.Change(j.Key, func(e *entry) {
		was := e.Users[j.use()]
		to.leaving, to.since = was.leaving, was.since
		e.Users[j.use()] = to
	})
}

// publish has the driver publish the volume for the pod. delegated: it gives the volume to the
// pod's fsGroup.
func (j job) publish(ctx context.Context) (delegated bool, err error) {
	began, target := false, j.paths.target(j.use())
	before, _ := j.book.Use(j.Key, j.use())
	err = j.call(ctx, target, func(ctx context.Context, c csipb.NodeClient, can Capabilities) error {
		delegated = can[csipb.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP]
		staging := ""
		if j.Block || !j.Ephemeral && can[csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME] {
			staging = j.paths.staging(j.Volume)
		}
		secrets, attributes, err := j.given(ctx)
		if err != nil {
			return err
		}
		began = true
		if err := j.beginPublish(target, !before.known || before.only); err != nil {
			return err
		}
		_, err = c.NodePublishVolume(ctx, &csipb.NodePublishVolumeRequest{
			VolumeId: j.Handle, PublishContext: j.attachment, StagingTargetPath: staging,
			TargetPath: target, VolumeCapability: j.capability(can), Readonly: j.ReadOnly,
			Secrets: secrets, VolumeContext: attributes,
		})
		return err
	})
	switch {
	case !began:
		return false, j.absent(err)
	case err != nil && isFinal(err) && (!before.known || before.only):
		if err := j.paths.endPublish(j.use()); err != nil {
			return false, err
		}
		j.settle(state{})
	}
	return delegated, err
}

// given returns the secrets and the attributes that the driver gets to publish the volume.
func (j job) given(ctx context.Context) (secrets, attributes map[string]string, err error) {
	secrets, err = j.cfg.secret(ctx, "NodePublishSecretRef", j.Secrets.Publish)
	if err != nil {
		return nil, nil, err
	}
	attributes = maps.Clone(j.Attributes)
	merge(&attributes, j.object.about(j.Pod, j.Volume))
	if j.Block {
		return secrets, attributes, nil
	}
	tokens, secret, err := j.tokens(ctx)
	if secret {
		merge(&secrets, tokens)
	} else {
		merge(&attributes, tokens)
	}
	return secrets, attributes, err
}

func merge(into *map[string]string, more map[string]string) {
	if *into == nil {
		*into = more
		return
	}
	maps.Copy(*into, more)
}

// beginStage writes the record of a volume that is about to be staged.
func (j job) beginStage(path string, only bool) error {
	j.staged(path, place{only: only})
	err := j.recordStage(path)
	if err == nil { // what is there without a record was recorded before
		err = os.MkdirAll(path, dirMode)
	}
	return err
}

func (j job) recordStage(path string) error {
	if j.Block {
		return j.beginBlock()
	}
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return err
	}
	return record{Driver: j.Driver, Handle: j.Handle, Label: j.Label}.write(filepath.Dir(path))
}

// beginBlock writes the record of a block volume, which is one for all pods.
func (j job) beginBlock() error {
	dir := j.paths.block(j.Path, "data")
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return err
	}
	return record{Driver: j.Driver, Handle: j.Handle, Name: j.Name, Node: j.cfg.Node,
		Attachment: j.AttachmentName(j.cfg.Node)}.write(dir)
}

// beginPublish writes the record of a volume that is about to be published.
func (j job) beginPublish(target string, only bool) error {
	u := j.use()
	j.settle(state{known: true, only: only})
	if err := os.MkdirAll(filepath.Dir(target), dirMode); err != nil {
		return err
	}
	if !j.Block {
		return record{Driver: j.Driver, Handle: j.Handle, Name: j.Name, Node: j.cfg.Node,
			Attachment: j.AttachmentName(j.cfg.Node), Life: j.life(), Label: j.Label,
		}.write(filepath.Dir(target))
	}
	path := j.paths.staging(j.Volume)
	j.book.Change(j.Key, func(e *entry) {
		if _, has := e.places[path]; !has {
			e.places[path] = place{path: path, name: j.Path}
		}
	})
	if err := j.beginBlock(); err != nil {
		return err
	}
	// The device is mounted on this file later. It is the record that the pod may have the volume.
	file := j.paths.device(u)
	if err := os.MkdirAll(filepath.Dir(file), dirMode); err != nil {
		return err
	}
	return files.Touch(file, dirMode)
}
