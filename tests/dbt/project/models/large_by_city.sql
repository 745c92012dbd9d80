{{ config(tblproperties={'encryption.key-id': 'other-key', 'write.format.default': 'avro'}, persist_docs={'relation': true, 'columns': true}) }}
select city, count(*) as sales from {{ ref('large') }} group by city
