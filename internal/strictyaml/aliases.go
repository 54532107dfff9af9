package strictyaml

import (
	"bytes"
	"errors"
	"fmt"

	yamltree "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// maxExpanded bounds the size in bytes of YAML with all aliases expanded: a few lines that refer to
// one another can expand beyond all memory.
const maxExpanded = 10 << 20

var (
	errExpanded = fmt.Errorf("its aliases (*name) stand for more than %d MiB together; "+
		"use fewer of them", maxExpanded>>20)
	errCycle = errors.New("an alias (*name) stands within what it stands for; write that out")
)

// ToJSON converts the first YAML document to JSON. strict: duplicate keys are an error.
func ToJSON(data []byte, strict bool) ([]byte, error) {
	if err := checkAliases(data); err != nil {
		return nil, err
	}
	if strict {
		return yaml.YAMLToJSONStrict(data)
	}
	return yaml.YAMLToJSON(data)
}

// checkAliases checks the expanded size of a document that may have aliases.
func checkAliases(data []byte) error {
	if !bytes.ContainsRune(data, '&') || !bytes.ContainsRune(data, '*') {
		return nil
	}
	var root yamltree.Node
	if err := yamltree.Unmarshal(data, &root); err != nil {
		return err
	}
	_, err := expansion{}.of(&root)
	return err
}

// expansion holds the expanded size of each anchored node; negative while it is being counted.
type expansion map[*yamltree.Node]int

func (e expansion) of(n *yamltree.Node) (size int, err error) {
	if n.Kind == yamltree.AliasNode {
		n = n.Alias
	}
	if known, ok := e[n]; ok && known < 0 {
		return 0, errCycle
	} else if ok {
		return known, nil
	}
	if n.Anchor != "" {
		e[n] = -1
	}
	const punctuation = 4 // quotes, colon, comma
	size = len(n.Value) + punctuation
	for _, child := range n.Content {
		part, err := e.of(child)
		if err != nil {
			return 0, err
		}
		if size += part; size > maxExpanded {
			return 0, errExpanded
		}
	}
	if n.Anchor != "" {
		e[n] = size
	}
	return size, nil
}
