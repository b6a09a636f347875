use crate::arrow::decode::fuzzing::table;
use crate::arrow::description::{Description, MAX_ENDPOINTS};
use crate::arrow::stream::DeviceStreamReader;

/// Any table that a server answers `describe` or `list` with is refused, or read into what is
/// written and read back the same (rules Q6, A8).
pub fn describe(data: &[u8]) {
    let Ok(description) = table(data).and_then(Description::read) else {
        return;
    };
    assert!(description.endpoints.len() <= MAX_ENDPOINTS);
    // An error is a valid outcome: the schema is bytes so far.
    let _ = description.schema();
    let Ok(stream) = description.stream() else {
        return;
    };
    let back = Description::read(Box::new(DeviceStreamReader::new(stream)));
    assert_eq!(back, Ok(description));
}
