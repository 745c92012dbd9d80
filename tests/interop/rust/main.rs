//! Prints the rows of a table, a line each, as iceberg-rust reads them: `reader METADATA_FILE KEY_ID KEY [SNAPSHOT]`.

use std::error::Error;
use std::sync::Arc;

use arrow_cast::display::array_value_to_string;
use futures::TryStreamExt;
use iceberg::encryption::SensitiveBytes;
use iceberg::encryption::kms::MemoryKeyManagementClient;
use iceberg::io::FileIO;
use iceberg::table::Table;
use iceberg::{Runtime, TableIdent};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let given: Vec<String> = std::env::args().collect();
    let kms = MemoryKeyManagementClient::new();
    kms.add_master_key_bytes(given[2].clone(), SensitiveBytes::new(given[3].as_bytes()))?;
    let metadata: iceberg::spec::TableMetadata = serde_json::from_str(&std::fs::read_to_string(&given[1])?)?;
    let table = Table::builder()
        .file_io(FileIO::new_with_fs())
        .metadata_location(given[1].clone())
        .metadata(metadata)
        .identifier(TableIdent::from_strs(["db", "t"])?)
        .kms_client(Arc::new(kms))
        .runtime(Runtime::try_current()?)
        .build()?;
    let scan = match given.get(4) {
        Some(snapshot) => table.scan().snapshot_id(snapshot.parse()?).build()?,
        None => table.scan().build()?,
    };
    let mut rows = scan.to_arrow().await?;
    while let Some(batch) = rows.try_next().await? {
        for row in 0..batch.num_rows() {
            let cells: Result<Vec<String>, _> = batch.columns().iter().map(|column| array_value_to_string(column, row)).collect();
            println!("{}", cells?.join("\t"));
        }
    }
    Ok(())
}
