package postgres

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// Arrays are how a batch hands its items to a statement. pgx asks each element for
// its type and boxes it, which costs more than the rest of sending a statement; the
// types that our statements use are written here in one go. All else is pgx's.

// registerArrays teaches m the arrays that are written here.
func registerArrays(m *pgtype.Map) {
	for _, oid := range []uint32{
		pgtype.UUIDArrayOID, pgtype.TextArrayOID, pgtype.Int8ArrayOID, pgtype.Int4ArrayOID, pgtype.Int2ArrayOID, pgtype.BoolArrayOID, pgtype.TimestamptzArrayOID,
	} {
		if t, ok := m.TypeForOID(oid); ok {
			if c, ok := t.Codec.(*pgtype.ArrayCodec); ok {
				m.RegisterType(&pgtype.Type{Name: t.Name, OID: oid, Codec: arrays{c}})
			}
		}
	}
}

// arrays is an array codec with some plans of its own.
type arrays struct{ *pgtype.ArrayCodec }

// PlanEncode chooses by the type of the slice.
func (a arrays) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if format == pgtype.BinaryFormatCode {
		switch element := a.ElementType.OID; value.(type) {
		case [][16]byte:
			if element == pgtype.UUIDOID {
				return arrayPlan[[16]byte]{element, putID}
			}
		case []*[16]byte:
			if element == pgtype.UUIDOID {
				return arrayPlan[*[16]byte]{element, orNull(putID)}
			}
		case []string:
			if element == pgtype.TextOID {
				return arrayPlan[string]{element, putText}
			}
		case []*string:
			if element == pgtype.TextOID {
				return arrayPlan[*string]{element, orNull(putText)}
			}
		case []int64:
			if element == pgtype.Int8OID {
				return arrayPlan[int64]{element, putInt8}
			}
		case []int32:
			if element == pgtype.Int4OID {
				return arrayPlan[int32]{element, putInt4}
			}
		case []int16:
			if element == pgtype.Int2OID {
				return arrayPlan[int16]{element, putInt2}
			}
		case []bool:
			if element == pgtype.BoolOID {
				return arrayPlan[bool]{element, putBool}
			}
		case []time.Time:
			if element == pgtype.TimestamptzOID {
				return arrayPlan[time.Time]{element, putTime}
			}
		case []*time.Time:
			if element == pgtype.TimestamptzOID {
				return arrayPlan[*time.Time]{element, orNull(putTime)}
			}
		}
	}
	return a.ArrayCodec.PlanEncode(m, oid, format, value)
}

// arrayPlan writes a []T in the binary format of array_send: dimensions, whether
// there are nulls, the element's type, length and lower bound, and then each element
// behind its length.
type arrayPlan[T any] struct {
	element uint32
	put     func([]byte, T) []byte
}

// Encode implements pgtype.EncodePlan.
func (p arrayPlan[T]) Encode(value any, b []byte) ([]byte, error) {
	list := value.([]T)
	if list == nil {
		return nil, nil
	}
	const head, typical = 20, 20
	b = slices.Grow(b, head+typical*len(list))
	b = binary.BigEndian.AppendUint32(b, 1)
	nulls := len(b)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, p.element)
	b = binary.BigEndian.AppendUint32(b, uint32(len(list)))
	b = binary.BigEndian.AppendUint32(b, 1)
	for _, v := range list {
		at := len(b)
		b = p.put(b, v)
		if b[at] == 0xff { // the length of a null is -1, and none is as long as that
			b[nulls+3] = 1
		}
	}
	return b, nil
}

func orNull[T any](put func([]byte, T) []byte) func([]byte, *T) []byte {
	return func(b []byte, v *T) []byte {
		if v == nil {
			return binary.BigEndian.AppendUint32(b, 0xffffffff)
		}
		return put(b, *v)
	}
}

func putID(b []byte, v [16]byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, 16), v[:]...)
}

func putText(b []byte, v string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
}

func putInt8(b []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, 8), uint64(v))
}

func putInt4(b []byte, v int32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, 4), uint32(v))
}

func putInt2(b []byte, v int16) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint32(b, 2), uint16(v))
}

func putBool(b []byte, v bool) []byte {
	b = binary.BigEndian.AppendUint32(b, 1)
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// year2000 is where PostgreSQL counts from, in seconds of ours.
const year2000 = 946684800

func putTime(b []byte, v time.Time) []byte {
	return putInt8(b, (v.Unix()-year2000)*1_000_000+int64(v.Nanosecond()/1000))
}
