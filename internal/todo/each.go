package todo

import (
	"fmt"
	"strings"
)

// manyAtOnce is up to how many items a statement for many takes. To find an element of
// an array of texts the server passes all before it, so the work grows with the square.
const manyAtOnce = 128

// each is a sub-select of SQL with a row for every element of the arrays $first and
// on, one array a column, each written as "name type"; and the element's number as
// ord. It costs a fraction of unnest over so many arrays, which keeps every one of
// them in a table of its own.
func each(first int, columns ...string) string {
	var b strings.Builder
	b.WriteString("SELECT ")
	for i, c := range columns {
		name, kind, _ := strings.Cut(c, " ")
		fmt.Fprintf(&b, "($%d::%s[])[ord] AS %s, ", first+i, kind, name)
	}
	_, kind, _ := strings.Cut(columns[0], " ")
	fmt.Fprintf(&b, "ord FROM generate_series(1, cardinality($%d::%s[])) AS ord", first, kind)
	return b.String()
}
