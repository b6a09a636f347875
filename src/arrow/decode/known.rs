//! The last schema that a connection has brought. The next stream mostly has the same schema.

use std::sync::Arc;

use parking_lot::Mutex;

use super::schema::{self, DecodedSchema};
use crate::error::Result;
use crate::proto::Header;

/// Longer headers are read anew, so that a connection without a stream keeps little memory.
const MOST_KEPT_BYTES: usize = 16 << 10;

/// The schema that was read last.
#[derive(Debug, Default)]
pub struct KnownSchema {
    latest: Mutex<Option<Latest>>,
}

#[derive(Debug)]
struct Latest {
    header: Header,
    /// The limit within which the schema was read.
    limit: u64,
    schema: Arc<DecodedSchema>,
}

impl KnownSchema {
    /// Reads a schema. If it is the one that was read last, it is not read again.
    ///
    /// # Errors
    ///
    /// As [`schema::parse`].
    pub(super) fn read(&self, header: &Header, limit: u64) -> Result<Arc<DecodedSchema>> {
        if let Some(latest) = &*self.latest.lock()
            && latest.limit <= limit
            && latest.header.bytes() == header.bytes()
        {
            return Ok(Arc::clone(&latest.schema));
        }
        let schema = Arc::new(schema::parse(header, limit)?);
        if header.bytes().len() <= MOST_KEPT_BYTES {
            *self.latest.lock() = Some(Latest {
                header: header.clone(),
                limit,
                schema: Arc::clone(&schema),
            });
        }
        Ok(schema)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;
    use crate::proto::testing;

    /// Streams that follow one another share the schema that they repeat; a limit that it exceeds
    /// is noticed all the same.
    #[test]
    fn a_schema_is_read_once() {
        let known = KnownSchema::default();
        let header = Header::parse(&testing::schema()).unwrap();
        let first = known.read(&header, u64::MAX).unwrap();
        assert!(Arc::ptr_eq(&first, &known.read(&header, u64::MAX).unwrap()));
        let error = known.read(&header, 1).unwrap_err();
        assert_eq!(error.status(), Status::OutOfMemory, "{error}");
        assert!(Arc::ptr_eq(&first, &known.read(&header, u64::MAX).unwrap()));
    }
}
