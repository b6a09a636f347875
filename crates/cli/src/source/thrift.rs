//! A reader for Thrift's compact protocol, to check the footer of a Parquet file before the
//! `parquet` crate reads it by recursion.

/// How deeply values may nest. Parquet's own structures need only a few levels.
const MAX_DEPTH: usize = 32;

/// The kinds of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    True,
    False,
    Byte,
    Integer,
    Double,
    Binary,
    List,
    Map,
    Struct,
    Uuid,
}

impl Kind {
    fn of(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::True,
            2 => Self::False,
            3 => Self::Byte,
            4..=6 => Self::Integer,
            7 => Self::Double,
            8 => Self::Binary,
            9 | 10 => Self::List,
            11 => Self::Map,
            12 => Self::Struct,
            13 => Self::Uuid,
            _ => return None,
        })
    }
}

/// Bytes being read. A function returns `None` if they break the protocol or the caller's
/// expectation.
#[derive(Clone)]
pub struct Thrift<'a> {
    rest: &'a [u8],
    depth: usize,
}

impl<'a> Thrift<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            depth: 0,
        }
    }

    /// The number of bytes left.
    pub fn len(&self) -> usize {
        self.rest.len()
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).and_then(|byte| byte.first().copied())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// An integer of any width.
    pub fn integer(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// Bytes or a text.
    pub fn binary(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.varint()?).ok()?;
        self.take(len)
    }

    /// The head of a list: the number and kind of its values.
    pub fn list(&mut self) -> Option<(usize, Kind)> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => usize::try_from(self.varint()?).ok()?,
            small => small.into(),
        };
        // Some writers leave out the kind of an empty list.
        if count == 0 {
            return Some((0, Kind::Byte));
        }
        // Each value takes at least a byte.
        (count <= self.rest.len()).then_some((count, Kind::of(head & 15)?))
    }

    /// Calls `visit` with number and kind of each field of a struct. `visit` reads the value or
    /// [skips](Self::skip) it.
    pub fn fields<E>(
        &mut self,
        mut visit: impl FnMut(&mut Self, i64, Kind) -> Result<Option<()>, E>,
    ) -> Result<Option<()>, E> {
        if self.depth == MAX_DEPTH {
            return Ok(None);
        }
        self.depth += 1;
        let mut id = 0;
        loop {
            let Some(head) = self.byte() else {
                return Ok(None);
            };
            if head & 15 == 0 {
                self.depth -= 1;
                return Ok(Some(()));
            }
            let next = match head >> 4 {
                0 => self.integer(),
                delta => Some(id + i64::from(delta)),
            };
            let (Some(next), Some(kind)) = (next, Kind::of(head & 15)) else {
                return Ok(None);
            };
            id = next;
            if !(0..=i64::from(i16::MAX)).contains(&id) || visit(self, id, kind)?.is_none() {
                return Ok(None);
            }
        }
    }

    /// Skips a value.
    pub fn skip(&mut self, kind: Kind) -> Option<()> {
        if self.depth == MAX_DEPTH {
            return None;
        }
        match kind {
            // The kind of a boolean field is its value.
            Kind::True | Kind::False => {}
            Kind::Byte => drop(self.byte()?),
            Kind::Integer => drop(self.varint()?),
            Kind::Double => drop(self.take(8)?),
            Kind::Uuid => drop(self.take(16)?),
            Kind::Binary => drop(self.binary()?),
            Kind::Struct => {
                let skip = |thrift: &mut Self, _, kind| Ok::<_, ()>(thrift.skip(kind));
                self.fields(skip).ok()??;
            }
            Kind::List => {
                let (count, kind) = self.list()?;
                self.depth += 1;
                for _ in 0..count {
                    self.skip_element(kind)?;
                }
                self.depth -= 1;
            }
            Kind::Map => {
                let count = self.varint()?;
                if count > 0 {
                    let kinds = self.byte()?;
                    let (key, value) = (Kind::of(kinds >> 4)?, Kind::of(kinds & 15)?);
                    self.depth += 1;
                    for _ in 0..count {
                        self.skip_element(key)?;
                        self.skip_element(value)?;
                    }
                    self.depth -= 1;
                }
            }
        }
        Some(())
    }

    /// Skips a value of a list or of a map.
    fn skip_element(&mut self, kind: Kind) -> Option<()> {
        match kind {
            Kind::True | Kind::False => self.byte().map(drop),
            kind => self.skip(kind),
        }
    }
}
