package allocation

import (
	"iter"
	"maps"
)

// shardCount keeps the cost of changing a map of some thousand entries at a few microseconds.
const shardCount = 64

// shards is an immutable map. A changed map shares all parts but one with the map that it comes
// from. The zero value is empty.
type shards[K ~string, V any] struct {
	parts *[shardCount]map[K]V // never written to
	size  int
}

// shardOf is FNV-1a.
func shardOf[K ~string](key K) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	return h % shardCount
}

func (s shards[K, V]) get(key K) (v V, found bool) {
	if s.parts == nil {
		return v, false
	}
	v, found = s.parts[shardOf(key)][key]
	return v, found
}

func (s shards[K, V]) with(key K, v V) shards[K, V] {
	_, known := s.get(key)
	part := s.edit(key)
	part[key] = v
	if !known {
		s.size++
	}
	return s
}

func (s shards[K, V]) without(key K) shards[K, V] {
	if _, known := s.get(key); !known {
		return s
	}
	delete(s.edit(key), key)
	s.size--
	return s
}

// edit replaces the key's part by a copy, and returns the copy.
func (s *shards[K, V]) edit(key K) map[K]V {
	var parts [shardCount]map[K]V
	if s.parts != nil {
		parts = *s.parts
	}
	at := shardOf(key)
	part := make(map[K]V, len(parts[at])+1)
	maps.Copy(part, parts[at])
	parts[at] = part
	s.parts = &parts
	return part
}

func (s shards[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if s.parts == nil {
			return
		}
		for _, part := range s.parts {
			for key, v := range part {
				if !yield(key, v) {
					return
				}
			}
		}
	}
}
