/// A stream of the IPC format is refused, or decoded into arrays that reach as far as they say
/// (rule A8).
pub fn decode(data: &[u8]) {
    crate::arrow::decode::fuzzing::decode(data);
}
