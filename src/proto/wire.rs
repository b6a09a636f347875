//! Little-endian fields of messages.

/// The rest of a message. Each method takes bytes from the front, or takes none and gives `None`.
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (chunk, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*chunk)
    }

    /// The next field.
    pub(crate) fn take<T: Wire>(&mut self) -> Option<T> {
        T::take(self)
    }

    /// All the bytes that are left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// How many bytes are left.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// `Some` if no bytes are left.
    pub(crate) fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// A field of a message.
pub(crate) trait Wire: Sized {
    fn put(&self, bytes: &mut Vec<u8>);

    fn take(fields: &mut Fields<'_>) -> Option<Self>;
}

macro_rules! numbers {
    ($($number:ident)*) => {$(
        impl Wire for $number {
            fn put(&self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }

            fn take(fields: &mut Fields<'_>) -> Option<Self> {
                fields.chunk().map(Self::from_le_bytes)
            }
        }
    )*};
}

numbers!(u8 u16 u32 u64 u128 i32 i64);

/// A struct whose fields follow one another.
macro_rules! wire_struct {
    ($name:ident { $($field:ident),* }) => {
        impl $crate::proto::wire::Wire for $name {
            fn put(&self, bytes: &mut Vec<u8>) {
                $(self.$field.put(bytes);)*
            }

            fn take(fields: &mut $crate::proto::wire::Fields<'_>) -> Option<Self> {
                Some(Self { $($field: fields.take()?),* })
            }
        }
    };
}
pub(crate) use wire_struct;

/// Bytes up to the end.
impl Wire for Vec<u8> {
    fn put(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self);
    }

    fn take(fields: &mut Fields<'_>) -> Option<Self> {
        Some(fields.rest().to_vec())
    }
}

/// Numbers up to the end.
impl Wire for Vec<u32> {
    fn put(&self, bytes: &mut Vec<u8>) {
        self.iter().for_each(|number| number.put(bytes));
    }

    fn take(fields: &mut Fields<'_>) -> Option<Self> {
        let (numbers, rest) = fields.rest().as_chunks::<4>();
        let numbers = numbers.iter().map(|it| u32::from_le_bytes(*it)).collect();
        rest.is_empty().then_some(numbers)
    }
}
