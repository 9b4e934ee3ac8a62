// A Linux scale set whose machines run the agent from their first start, and are announced before they are deleted.
//   az deployment group create --resource-group GROUP --template-file scale-set.bicep --parameters \
//     subnetId=… sshPublicKey=@key.pub installScript=@drydock.sh
// drydock.sh is the text "New Linux VMs, with cloud-init" of the page Join tokens.

param name string = 'web'
param location string = resourceGroup().location
param vmSize string = 'Standard_D2s_v5'
@minValue(1)
param instances int = 3
param subnetId string
param sshPublicKey string

@secure()
@description('Installs the agent. It contains the join token, so it is in protected settings, not in the custom data.')
param installScript string

@description('How long a machine can prepare before it is deleted: 5 to 15 minutes.')
param terminateNotice string = 'PT15M'

resource scaleSet 'Microsoft.Compute/virtualMachineScaleSets@2024-07-01' = {
  name: name
  location: location
  sku: {
    name: vmSize
    capacity: instances
  }
  properties: {
    orchestrationMode: 'Flexible'
    platformFaultDomainCount: 1
    virtualMachineProfile: {
      scheduledEventsProfile: {
        terminateNotificationProfile: {
          enable: true
          notBeforeTimeout: terminateNotice
        }
      }
      osProfile: {
        computerNamePrefix: name
        adminUsername: 'azureuser'
        linuxConfiguration: {
          disablePasswordAuthentication: true
          ssh: {
            publicKeys: [
              {
                path: '/home/azureuser/.ssh/authorized_keys'
                keyData: sshPublicKey
              }
            ]
          }
        }
      }
      storageProfile: {
        imageReference: {
          publisher: 'Debian'
          offer: 'debian-12'
          sku: '12-gen2'
          version: 'latest'
        }
        osDisk: {
          createOption: 'FromImage'
          managedDisk: {
            storageAccountType: 'Premium_LRS'
          }
        }
      }
      networkProfile: {
        networkApiVersion: '2020-11-01'
        networkInterfaceConfigurations: [
          {
            name: 'nic'
            properties: {
              primary: true
              ipConfigurations: [
                {
                  name: 'ip'
                  properties: {
                    subnet: {
                      id: subnetId
                    }
                  }
                }
              ]
            }
          }
        ]
      }
      extensionProfile: {
        extensions: [
          {
            name: 'drydock-agent'
            properties: {
              publisher: 'Microsoft.Azure.Extensions'
              type: 'CustomScript'
              typeHandlerVersion: '2.1'
              autoUpgradeMinorVersion: true
              protectedSettings: {
                script: base64(installScript)
              }
            }
          }
        ]
      }
    }
  }
}

output id string = scaleSet.id
