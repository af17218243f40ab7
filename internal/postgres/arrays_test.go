package postgres

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"
)

// What is written here is what pgx writes, byte for byte.
func TestArraysAreWrittenAsPgxDoes(t *testing.T) {
	t.Parallel()
	ours, theirs := pgtype.NewMap(), pgtype.NewMap()
	registerArrays(ours)
	id, text, now := [16]byte{1, 2, 3, 255}, "it's ⌘", time.Date(2026, 7, 28, 1, 2, 3, 456789123, time.FixedZone("", -7200))
	then := time.Date(1969, 12, 31, 23, 59, 59, 999999999, time.UTC)
	for _, c := range []struct {
		oid    uint32
		values []any
	}{
		{pgtype.UUIDArrayOID, []any{[][16]byte{}, [][16]byte{id, {}}, []*[16]byte{nil, &id}, []*[16]byte{&id}, [][16]byte(nil)}},
		{pgtype.TextArrayOID, []any{[]string{}, []string{"", text}, []*string{&text, nil}, []string(nil)}},
		{pgtype.Int8ArrayOID, []any{[]int64{0, -1, 1 << 62, -1 << 63}}},
		{pgtype.Int4ArrayOID, []any{[]int32{0, -1, 1 << 30}}},
		{pgtype.Int2ArrayOID, []any{[]int16{0, -1, 1 << 14}}},
		{pgtype.BoolArrayOID, []any{[]bool{true, false}}},
		{pgtype.TimestamptzArrayOID, []any{[]time.Time{now, then, {}}, []*time.Time{nil, &now}}},
		{pgtype.VarcharArrayOID, []any{[]string{text}}},
		{pgtype.Int4ArrayOID, []any{[]int64{1, 2}, []string{"1"}}},
		{pgtype.UUIDArrayOID, []any{[]string{"01890a5d-ac96-774b-bcce-b302099a8057"}}},
	} {
		for _, v := range c.values {
			for _, format := range []int16{pgtype.BinaryFormatCode, pgtype.TextFormatCode} {
				want, errWant := theirs.Encode(c.oid, format, v, []byte("before"))
				got, err := ours.Encode(c.oid, format, v, []byte("before"))
				require.Equal(t, errWant == nil, err == nil, "%T", v)
				require.Equal(t, want, got, "%T %v", v, v)
			}
		}
	}
}

func BenchmarkArrays(b *testing.B) {
	ids := make([][16]byte, 30)
	for _, c := range []struct {
		name string
		m    *pgtype.Map
	}{{"own", pgtype.NewMap()}, {"pgx", pgtype.NewMap()}} {
		if c.name == "own" {
			registerArrays(c.m)
		}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			buf := make([]byte, 0, 4096)
			for b.Loop() {
				_, _ = c.m.Encode(pgtype.UUIDArrayOID, pgtype.BinaryFormatCode, ids, buf)
			}
		})
	}
}
