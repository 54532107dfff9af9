package claims

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/claims/claim"
	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/files"
)

// KubeletFile is the name of the kubelet's record of claims in its root.
const KubeletFile = "dra_manager_state"

// writer marks a KubeletFile that this agent wrote. A kubelet that writes the file drops the mark:
// it has changed what is prepared since.
const writer = "numalet"

// checkpoint is the kubelet's file. The checksum is the CRC-32 (IEEE) of Data.
type checkpoint struct {
	Data     string
	Checksum uint32
}

type checkpointData struct {
	metav1.TypeMeta
	ClaimInfoStateList []claimInfo
	// Writer is ours; the kubelet ignores it.
	Writer string `json:"numaletWriter,omitempty"`
}

type claimInfo struct {
	ClaimUID    types.UID
	ClaimName   string
	Namespace   string
	PodUIDs     map[string]struct{}
	DriverState map[string]driverState
}

type driverState struct {
	Devices            []preparedDevice
	SkipNodeOperations []resourcev1.SkipNodeOperation `json:"skipNodeOperations,omitempty"`
}

type preparedDevice struct {
	PoolName     string
	DeviceName   string
	ShareID      *types.UID
	RequestNames []string
	CDIDeviceIDs []string
}

// encodeKubelet returns the kubelet's file. Claims of which no driver was told are left out: a
// kubelet would call their drivers to unprepare them.
func encodeKubelet(all records) ([]byte, error) {
	data := checkpointData{
		TypeMeta: metav1.TypeMeta{
			Kind: "DRACheckpoint", APIVersion: "checkpoint.dra.kubelet.k8s.io/v1",
		},
		ClaimInfoStateList: []claimInfo{}, Writer: writer,
	}
	for _, r := range all.list() {
		if r.inStage(StagePreparing, StagePrepared, StageUnpreparing) {
			data.ClaimInfoStateList = append(data.ClaimInfoStateList, r.info())
		}
	}
	return seal(data)
}

// seal adds the checksum.
func seal(data checkpointData) ([]byte, error) {
	raw, err := json.Marshal(data)
	if err != nil {
		return nil, err
	}
	return json.Marshal(checkpoint{string(raw), crc32.ChecksumIEEE(raw)})
}

func (r *Record) info() claimInfo {
	out := claimInfo{ClaimUID: r.UID, ClaimName: r.Name, Namespace: r.Namespace,
		PodUIDs: map[string]struct{}{}, DriverState: map[string]driverState{}}
	for _, u := range r.Users {
		out.PodUIDs[string(u.UID)] = struct{}{}
	}
	for _, d := range r.Drivers {
		var s driverState
		for _, device := range d.Devices {
			one := preparedDevice{PoolName: device.Pool, DeviceName: device.Name,
				RequestNames: device.Requests, CDIDeviceIDs: device.CDI}
			if id := types.UID(device.ShareID); id != "" {
				one.ShareID = &id
			}
			s.Devices = append(s.Devices, one)
		}
		switch {
		case d.Skips.Prepare && d.Skips.Unprepare:
			s.SkipNodeOperations = append(s.SkipNodeOperations, resourcev1.SkipNodeOperationAll)
		case d.Skips.Prepare:
			s.SkipNodeOperations = append(s.SkipNodeOperations,
				resourcev1.SkipNodeOperationNodePrepareResources)
		case d.Skips.Unprepare:
			s.SkipNodeOperations = append(s.SkipNodeOperations,
				resourcev1.SkipNodeOperationNodeUnprepareResources)
		}
		out.DriverState[d.Name] = s
	}
	return out
}

// decodeKubelet reads the kubelet's file. ours: this agent wrote it.
func decodeKubelet(raw []byte) (list []claimInfo, ours bool, err error) {
	var outer checkpoint
	if err := json.Unmarshal(raw, &outer); err != nil {
		return nil, false, fmt.Errorf("it is no checkpoint: %w", err)
	}
	if sum := crc32.ChecksumIEEE([]byte(outer.Data)); sum != outer.Checksum {
		return nil, false, fmt.Errorf("its checksum is %d, and that of its data %d",
			outer.Checksum, sum)
	}
	var data checkpointData
	if err := json.Unmarshal([]byte(outer.Data), &data); err != nil {
		return nil, false, fmt.Errorf("its data cannot be read: %w", err)
	}
	return data.ClaimInfoStateList, data.Writer == writer, nil
}

// takeOver returns what a kubelet recorded, with what is known of its claims beside. prepared: what
// its drivers prepared is so still.
func takeOver(known records, list []claimInfo, prepared bool, now time.Time) (records, error) {
	out := records{}
	for _, info := range list {
		r := &Record{Claim: Claim{info.Namespace, info.ClaimName, info.ClaimUID}}
		if was := known[r.key()]; was != nil && was.UID == r.UID {
			r.Devices, r.Users = was.Devices, slices.Clone(was.Users)
		}
		r.Users = slices.DeleteFunc(r.Users, func(u User) bool {
			_, left := info.PodUIDs[string(u.UID)]
			return !left
		})
		for uid := range info.PodUIDs {
			is := func(u User) bool { return u.UID == types.UID(uid) }
			if !slices.ContainsFunc(r.Users, is) {
				r.Users = append(r.Users, User{UID: types.UID(uid)})
			}
		}
		slices.SortFunc(r.Users, func(a, b User) int {
			return strings.Compare(string(a.UID), string(b.UID))
		})
		for name, s := range info.DriverState {
			r.Drivers = append(r.Drivers, s.driver(name, prepared, now))
		}
		slices.SortFunc(r.Drivers, func(a, b Driver) int { return strings.Compare(a.Name, b.Name) })
		if err := r.check(); err != nil {
			return nil, err
		}
		out[r.key()] = r
	}
	return out, nil
}

// driver is a driver of the kubelet's file. One without devices may have prepared nothing yet.
func (s driverState) driver(name string, prepared bool, now time.Time) Driver {
	d := Driver{Name: name, Stage: StagePreparing, Since: now}
	all := slices.Contains(s.SkipNodeOperations, resourcev1.SkipNodeOperationAll)
	d.Skips = claim.Skip{
		Prepare: all || slices.Contains(s.SkipNodeOperations,
			resourcev1.SkipNodeOperationNodePrepareResources),
		Unprepare: all || slices.Contains(s.SkipNodeOperations,
			resourcev1.SkipNodeOperationNodeUnprepareResources),
	}
	if d.Skips.Prepare || prepared && len(s.Devices) > 0 {
		d.Stage = StagePrepared
	}
	if d.Stage != StagePrepared {
		return d
	}
	for _, device := range s.Devices {
		one := dra.Device{Pool: device.PoolName, Name: device.DeviceName,
			Requests: device.RequestNames, CDI: device.CDIDeviceIDs}
		if device.ShareID != nil {
			one.ShareID = string(*device.ShareID)
		}
		d.Devices = append(d.Devices, one)
	}
	return d
}

// export keeps the kubelet's file in line with the records.
type export struct {
	path string
	told complaint.Complaint[string]
}

// changed writes the file. One that a power cut undoes is made again from the records.
func (e *export) changed(next records) {
	raw, err := encodeKubelet(next)
	if err == nil {
		err = files.Renew(e.path, raw)
	}
	if e.told.Begins(complaint.Of(err)) {
		klog.Background().Error(err, "The kubelet's record of claims is not written", "file", e.path)
	}
}

// align brings the book in line with the kubelet's file: if a kubelet wrote it, its account counts.
// booted is when the machine started; zero: it is not known.
func (b *book) align(dir string, booted time.Time) error {
	path := filepath.Join(dir, KubeletFile)
	b.export = &export{path: path}
	info, err := os.Stat(path)
	type account struct {
		list []claimInfo
		ours bool
	}
	now := time.Now()
	read, loadErr := files.Load(path, maxFile, now, func(raw []byte) (a account, err error) {
		a.list, a.ours, err = decodeKubelet(raw)
		return a, err
	})
	if loadErr != nil {
		loadErr = fmt.Errorf("read the kubelet's resource claims: %w", loadErr)
	}
	if loadErr != nil && !isUnusable(loadErr) {
		return loadErr
	}
	if loadErr != nil || err != nil || read.ours {
		b.export.changed(b.records())
		return loadErr
	}
	all, err := takeOver(b.records(), read.list, !info.ModTime().Before(booted), now)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := b.replace(all); err != nil {
		return err
	}
	raw, err := encodeKubelet(all)
	if err != nil {
		return err
	}
	// Durable: otherwise the kubelet's account could count again after what this agent did.
	return files.ReplaceDurably(path, raw)
}

// replace writes all records anew.
func (b *book) replace(all records) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	content, err := b.whole(all, true)
	if err == nil {
		err = b.file.Begin(content)
	}
	if err != nil {
		return unrecorded(err)
	}
	b.now.Store(newPage(all))
	return nil
}
