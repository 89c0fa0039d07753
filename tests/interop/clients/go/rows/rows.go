// Package rows has what the readers share: their arguments, and records as lines of JSON.
package rows

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Limit ends a reader whose records do not come.
const Limit = 90 * time.Second

// Asked are the arguments: BOOTSTRAP TOPIC,TOPIC… ISOLATION GROUP COUNT.
type Asked struct {
	Bootstrap string
	Topics    []string
	Committed bool
	Group     string
	Count     int
}

// Arguments reads them.
func Arguments() Asked {
	count, err := strconv.Atoi(os.Args[5])
	Check(err)
	return Asked{os.Args[1], strings.Split(os.Args[2], ","), os.Args[3] == "read_committed", os.Args[4], count}
}

// Header is a name and bytes, nil for null.
type Header struct {
	Name  string
	Value []byte
}

var out = bufio.NewWriter(os.Stdout)

// Show prints a record: encoding/json writes bytes in base64, and nil as null.
func Show(topic string, partition int, offset int64, at time.Time, key, value []byte, headers []Header) {
	shown := make([][2]any, len(headers))
	for i, each := range headers {
		shown[i] = [2]any{each.Name, each.Value}
	}
	line, err := json.Marshal([]any{topic, partition, offset, at.UnixMilli(), key, value, shown})
	Check(err)
	fmt.Fprintln(out, string(line))
}

// Flush writes what is left.
func Flush() { Check(out.Flush()) }

// Check ends the program at an error.
func Check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
