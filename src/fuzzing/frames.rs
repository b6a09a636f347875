pub use crate::transport::stream::fuzzing::frames;
