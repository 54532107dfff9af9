package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// ErrUnusable: a file could not be used and was moved aside. Each such error is an *Unusable.
var ErrUnusable = errors.New("the file cannot be used")

// Unusable is the error about a file that could not be used and was moved aside.
type Unusable struct {
	Path, Aside string
	Err         error
}

func (u *Unusable) Error() string {
	return fmt.Sprintf("%v; moved to %s, going on without it", u.Err, u.Aside)
}

func (u *Unusable) Unwrap() error { return u.Err }

// Is makes errors.Is match ErrUnusable.
func (*Unusable) Is(target error) bool { return target == ErrUnusable }

// Load returns the content of a file; of a missing file, the zero value. A file that cannot be used
// is moved aside, with now in its name: the value is zero then beside an *Unusable. Any other error
// says that it is in the way.
func Load[T any](path string, limit int64, now time.Time, decode func([]byte) (T, error)) (
	value T, err error) {
	raw, err := Read(path, limit)
	if errors.Is(err, fs.ErrNotExist) {
		return value, nil
	}
	if err == nil {
		if value, err = decode(raw); err == nil {
			return value, nil
		}
	}
	var none T
	return none, SetAside(path, now, err)
}

// SetAside moves what cannot be used out of the way, with now in its name, and returns an *Unusable. Any
// other error says that it is in the way.
func SetAside(path string, now time.Time, why error) error {
	aside, err := MoveAside(path, now)
	if err != nil {
		return fmt.Errorf("%w, and it stays in the way: %w; move it away by hand", why, err)
	}
	return &Unusable{path, aside, why}
}

// LoadJSON is Load of JSON.
func LoadJSON[T any](path string, limit int64, now time.Time) (T, error) {
	return Load(path, limit, now, func(raw []byte) (value T, err error) {
		err = json.Unmarshal(raw, &value)
		return value, err
	})
}

// ErrTooLarge: a value has no room in its file.
var ErrTooLarge = errors.New("too large for its file")

// Record is a value that is kept in a file: durable first, and then believed. It has one owner, which
// tries again what failed.
type Record[T any] struct {
	path   string
	limit  int
	encode func(T) ([]byte, error)
	value  T
}

// NewRecord is a record in the file at path, which has value now, as JSON of at most limit bytes.
func NewRecord[T any](path string, limit int, value T) *Record[T] {
	return NewRecordOf(path, limit, value, func(value T) ([]byte, error) {
		raw, err := json.MarshalIndent(value, "", "  ")
		return append(raw, '\n'), err
	})
}

// NewRecordOf is NewRecord for a file with a format of its own.
func NewRecordOf[T any](path string, limit int, value T, encode func(T) ([]byte, error)) *Record[T] {
	return &Record[T]{path, limit, encode, value}
}

// Get is the value that was last on the disk.
func (r *Record[T]) Get() T { return r.value }

// Set writes a value durably, and then takes it. On an error Get is what it was.
func (r *Record[T]) Set(value T) error {
	raw, err := r.encode(value)
	if err != nil {
		return err
	}
	if len(raw) > r.limit {
		return fmt.Errorf("%s: %w", r.path, ErrTooLarge)
	}
	if err := ReplaceDurably(r.path, raw); err != nil {
		return err
	}
	r.value = value
	return nil
}
