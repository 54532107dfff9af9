package csidriver

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/numalet/numalet/internal/files"
)

// volume is the content of volume.json.
type volume struct {
	ID, Name string
	Size     int64
	// Attached are the ids of the nodes, each with whether it may only read.
	Attached map[string]bool `json:",omitempty"`
}

const (
	smallest, largest = 16 << 20, 1 << 40
	usual             = 64 << 20
)

// idOf returns the id of the volume of that name: the same name is the same volume.
func idOf(name string) string { return fmt.Sprintf("vol-%x", sha256.Sum256([]byte(name)))[:20] }

// dirOf returns a volume's folder. An id that is no name of a file has none.
func (d *Driver) dirOf(id string) (string, error) {
	if id == "" {
		return "", invalid("the request has no volume id")
	}
	if len(id) > 100 || strings.ContainsAny(id, "/\x00") || strings.HasPrefix(id, ".") {
		return "", absent("there is no volume %.100q", id)
	}
	return filepath.Join(d.config.Dir, "volumes", id), nil
}

// image returns the file with a volume's bytes.
func image(dir string) string { return filepath.Join(dir, "image") }

// find returns a volume and its folder.
func (d *Driver) find(id string) (volume, string, error) {
	dir, err := d.dirOf(id)
	if err != nil {
		return volume{}, "", err
	}
	raw, err := os.ReadFile(filepath.Join(dir, "volume.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return volume{}, "", absent("there is no volume %s", id)
	}
	var v volume
	if err == nil {
		err = json.Unmarshal(raw, &v)
	}
	return v, dir, err
}

// save writes a volume, whole or not at all.
func (d *Driver) save(v volume) error {
	dir, err := d.dirOf(v.ID)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return files.Replace(filepath.Join(dir, "volume.json"), raw)
}

// size returns how large a volume is to be; 0 as the limit: there is none.
func size(required, limit int64) (int64, error) {
	is := max(required, smallest)
	if required == 0 {
		is = usual
	}
	if limit > 0 && is > limit {
		is = limit
	}
	if is < required || is < smallest || is > largest || required < 0 || limit < 0 {
		return 0, status.Errorf(codes.OutOfRange, "a volume of %d to %d bytes; possible are %d to %d",
			required, limit, smallest, int64(largest))
	}
	return is, nil
}

// Provision makes a volume without a call, as one that exists before a test, and returns its id.
func Provision(dir, name string, bytes int64) (string, error) {
	d := &Driver{config: Config{Dir: dir}}
	v := volume{ID: idOf(name), Name: name, Size: bytes}
	if err := d.save(v); err != nil {
		return "", err
	}
	return v.ID, d.allocate(v)
}

// allocate makes the volume's bytes, or more of them.
func (d *Driver) allocate(v volume) error {
	dir, err := d.dirOf(v.ID)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(image(dir), os.O_CREATE|os.O_RDWR, 0o640)
	if err != nil {
		return err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Size() >= v.Size {
		return err
	}
	return file.Truncate(v.Size)
}
