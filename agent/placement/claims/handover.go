package claims

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
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
	// Writer and BootID are ours; the kubelet ignores them.
	Writer string `json:"numaletWriter,omitempty"`
	BootID string `json:"numaletBootID,omitempty"`
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
func encodeKubelet(all records, bootID string) ([]byte, error) {
	data := checkpointData{
		TypeMeta: metav1.TypeMeta{
			Kind: "DRACheckpoint", APIVersion: "checkpoint.dra.kubelet.k8s.io/v1",
		},
		ClaimInfoStateList: []claimInfo{}, Writer: writer, BootID: bootID,
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
			if d.Stage == StagePreparing {
				break // their CDI ids are not known
			}
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

// decodeKubelet reads the kubelet's file.
func decodeKubelet(raw []byte) (a account, err error) {
	var outer checkpoint
	if err := json.Unmarshal(raw, &outer); err != nil {
		return a, fmt.Errorf("it is no checkpoint: %w", err)
	}
	if sum := crc32.ChecksumIEEE([]byte(outer.Data)); sum != outer.Checksum {
		return a, fmt.Errorf("its checksum is %d, and that of its data %d", outer.Checksum, sum)
	}
	var data checkpointData
	if err := json.Unmarshal([]byte(outer.Data), &data); err != nil {
		return a, fmt.Errorf("its data cannot be read: %w", err)
	}
	for _, info := range data.ClaimInfoStateList {
		if err := info.record().check(); err != nil {
			return a, err
		}
	}
	return account{data.ClaimInfoStateList, data.Writer == writer, data.BootID}, nil
}

// takeOver returns what a kubelet recorded, with what is known of its claims beside. prepared: what
// its drivers prepared is so still.
func takeOver(known records, list []claimInfo, prepared bool, now time.Time) records {
	out := records{}
	for _, info := range list {
		r := info.record()
		for i := range r.Drivers {
			r.Drivers[i].takeOver(info.DriverState[r.Drivers[i].Name], prepared, now)
		}
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
		slices.SortFunc(r.Users, byUID)
		out[r.key()] = r
	}
	return out
}

// record returns the claim with its drivers, of which a call to prepare may have reached each.
func (info claimInfo) record() *Record {
	r := &Record{Claim: Claim{info.Namespace, info.ClaimName, info.ClaimUID}}
	for _, name := range slices.Sorted(maps.Keys(info.DriverState)) {
		r.Drivers = append(r.Drivers, Driver{Name: name, Stage: StagePreparing})
	}
	return r
}

// takeOver adds what the kubelet's file says of the driver. One without devices may have prepared
// nothing yet.
func (d *Driver) takeOver(s driverState, prepared bool, now time.Time) {
	d.Since = now
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
		return
	}
	for _, device := range s.Devices {
		one := dra.Device{Pool: device.PoolName, Name: device.DeviceName,
			Requests: device.RequestNames, CDI: device.CDIDeviceIDs}
		if device.ShareID != nil {
			one.ShareID = string(*device.ShareID)
		}
		d.Devices = append(d.Devices, one)
	}
}

// export keeps the kubelet's file in line with the records.
type export struct {
	path, boot string
	problem    complaint.Complaint[string]
}

// changed writes the file. A write that a power cut undoes is made again from the records.
func (e *export) changed(next records) {
	raw, err := encodeKubelet(next, e.boot)
	if err == nil {
		err = files.Renew(e.path, raw)
	}
	if e.problem.Begins(complaint.Of(err)) {
		klog.Background().Error(err, "The kubelet's record of claims is not written", "file", e.path)
	}
}

// account is the content of the kubelet's file.
type account struct {
	list []claimInfo
	// ours: this agent wrote it, in the boot of that id; "": an older version did.
	ours bool
	boot string
}

// align brings the book in line with the kubelet's file. If a kubelet wrote the file, its account
// counts. If this agent did, it counts for what the book has lost, of which align returns how many
// claims there are. booted is when the machine started; zero: it is not known.
func (b *book) align(dir string, booted time.Time) (recovered int, err error) {
	path := filepath.Join(dir, KubeletFile)
	b.export = &export{path: path, boot: b.bootID}
	info, err := os.Stat(path)
	now := time.Now()
	read, loadErr := files.Load(path, maxFile, now, decodeKubelet)
	if loadErr != nil {
		loadErr = fmt.Errorf("read the kubelet's resource claims: %w", loadErr)
	}
	if loadErr != nil && !isUnusable(loadErr) {
		return 0, loadErr
	}
	if loadErr != nil || err != nil {
		b.export.changed(b.records())
		return 0, loadErr
	}
	prepared := !info.ModTime().Before(booted) && (read.boot == "" || read.boot == b.bootID)
	all := takeOver(b.records(), read.list, prepared, now)
	if read.ours {
		all, recovered = b.records().completed(all)
	}
	if read.ours && recovered == 0 {
		b.export.changed(b.records())
		return 0, nil
	}
	if err := b.replace(all); err != nil {
		return 0, err
	}
	raw, err := encodeKubelet(all, b.bootID)
	if err != nil {
		return 0, err
	}
	// Durable: otherwise the kubelet's account could count again after what this agent did.
	return recovered, files.ReplaceDurably(path, raw)
}

// completed returns the records, completed by an account that was written from later ones, and how many
// claims that changes: the records, or their last changes, are lost. Surplus in the account, as after a
// crash between both files, does no harm: pods that are not there are released, and a driver unprepares
// a claim twice.
func (all records) completed(later records) (out records, news int) {
	out = maps.Clone(all)
	for key, r := range later {
		was := all[key]
		if was != nil && was.UID == r.UID {
			r = was.completed(r)
		}
		if !same(was, r) {
			out[key] = r
			news++
		}
	}
	return out, news
}

// completed adds the users that a later record of the claim has, and what its drivers prepared. With
// other users its drivers may have been called for these.
func (r *Record) completed(later *Record) *Record {
	next := r.clone()
	next.Users = slices.DeleteFunc(next.Users, func(u User) bool { return u.Leaving })
	used := false
	for _, u := range later.Users {
		if !slices.ContainsFunc(r.Users, func(of User) bool { return of.UID == u.UID }) {
			used = true
		}
		if !next.has(u.UID) {
			u.Leaving = false
			next.Users = append(next.Users, u)
		}
	}
	if !used {
		next.Users = slices.Clone(r.Users)
	}
	slices.SortFunc(next.Users, byUID)
	for _, d := range later.Drivers {
		own := next.driver(d.Name)
		switch {
		case own == nil:
		case own.Stage == StageUnsent, own.Stage == StageUnpreparing && used,
			own.Stage == StagePreparing && d.Stage == StagePrepared:
			*own = d
		}
	}
	return next
}

// replace writes all records anew, before others use the book.
func (b *book) replace(all records) error {
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
