package devicemanager

import "encoding/binary"

// First bytes of fields on the wire (number<<3 | 2): a length and that many bytes follow.
// ListAndWatchResponse has devices = 1; Device has ID = 1, health = 2, topology = 3.
const (
	tagDevice   = 1<<3 | 2
	tagID       = 1<<3 | 2
	tagHealth   = 2<<3 | 2
	tagTopology = 3<<3 | 2
)

// split yields the encoded devices of a message until yield returns false; plain is false if it
// meets anything else.
func split[T string | []byte](msg T, yield func(T) bool) (plain bool) {
	for len(msg) > 0 {
		if msg[0] != tagDevice {
			return false
		}
		entry, rest, ok := field(msg[1:])
		if !ok {
			return false
		}
		if !yield(entry) {
			return true
		}
		msg = rest
	}
	return true
}

// fields are the parts of one encoded device.
type fields[T string | []byte] struct {
	id, health, topology T
	// placed: there is a topology, even an empty one.
	placed bool
}

// fieldsOf splits one encoded device; plain is false if only the protobuf library can interpret it.
func fieldsOf[T string | []byte](entry T) (out fields[T], plain bool) {
	for len(entry) > 0 {
		tag := entry[0]
		value, rest, ok := field(entry[1:])
		switch {
		case !ok:
			return out, false
		case tag == tagID:
			out.id = value
		case tag == tagHealth:
			out.health = value
		case tag == tagTopology && !out.placed:
			out.topology, out.placed = value, true
		default:
			return out, false
		}
		entry = rest
	}
	return out, true
}

// field splits a length and that many bytes off in.
func field[T string | []byte](in T) (value, rest T, ok bool) {
	var length uint64
	for i := 0; i < len(in) && i < binary.MaxVarintLen32; i++ {
		length |= uint64(in[i]&0x7f) << (7 * i)
		if in[i] < 0x80 {
			in = in[i+1:]
			if length > uint64(len(in)) {
				return value, rest, false
			}
			return in[:length], in[length:], true
		}
	}
	return value, rest, false
}
